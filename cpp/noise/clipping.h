// The L2 norm of a vector and the factor that brings it under a bound: the first of the two passes of noise.
#pragma once

#include <cstddef>
#include <span>

namespace shieldfl::noise {

// Values are summed, and noised, in blocks of this many; block b of noise reads random stream b.
inline constexpr std::size_t kNoiseBlock = 4096;

// What a thread must have to do before it is worth its start: threads_for(). Squaring or scaling a value
// takes a quarter of a nanosecond, Gaussian noise some 5 ns, discrete noise some 100 ns.
inline constexpr std::size_t kValuesWorthScaling = std::size_t{1} << 19;
inline constexpr std::size_t kValuesWorthNoise = std::size_t{1} << 15;
inline constexpr std::size_t kValuesWorthDiscreteNoise = std::size_t{1} << 12;

// Clipping norms below this are refused: products would leave the range of normal floats.
inline constexpr double kLeastClipNorm = 0x1p-100;

struct Clipping {
  double original_norm;  // L2 norm of the input, in double precision
  double factor;         // what to multiply values by; exactly 1 where nothing is clipped

  [[nodiscard]] bool was_clipped() const { return factor != 1.0; }
};

// Measures `values` against `clip_norm`. A vector longer than `clip_norm` gets a factor such that the exact
// norm of its products, rounded to float, is at most `clip_norm`; another one is left as it is. The result
// depends neither on `threads` (0 means threads_for()) nor on the instruction set. The norm is data: it is
// not private.
//
// Throws Error: kParameter when clip_norm is not finite or below kLeastClipNorm; kRange when a value is NaN
// or infinite, with the first such position.
Clipping measure_clipping(std::span<const float> values, double clip_norm, std::size_t threads);

// Calls measure_clipping and writes values[i] * factor, rounded once to float, to `clipped`, which has the
// size of `values` and may be the same memory.
Clipping clip(std::span<const float> values, std::span<float> clipped, double clip_norm, std::size_t threads);

}  // namespace shieldfl::noise
