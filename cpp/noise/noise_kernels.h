// The arithmetic of clipping and Gaussian noise, one table of functions per instruction set. All tables give
// the same bits: they use IEEE additions, multiplications, divisions and square roots in one order, and
// integer ops.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl {
enum class InstructionSet : std::uint8_t;
}

namespace shieldfl::noise {

// Noise is made in groups: 64 values from 40 random words, the first 32 for the radii of pairs, 8 for their
// angles.
inline constexpr std::size_t kGaussianGroup = 64;
inline constexpr std::size_t kRadiusWords = 32;
inline constexpr std::size_t kAngleWords = 8;
inline constexpr std::size_t kWordsPerGroup = kRadiusWords + kAngleWords;

struct NoiseKernels {
  // The sum of values[i]^2 in double precision, the squares exact, in an order that depends on `count` alone.
  // Not finite exactly when a value is not.
  double (*sum_of_squares)(const float* values, std::size_t count);

  // out[i] = in[i] * factor, rounded to double and then to float. `out` may be `in`.
  void (*scale)(const float* in, float* out, std::size_t count, double factor);

  // out[i] = in[i] * factor + deviation * g[i], formed in double and rounded once to float, where g are draws
  // from N(0, 1) by the Box-Muller transform. Takes whole groups; `out` may be `in`.
  //
  // Pair p of a group, 0 <= p < 32, gives g[p] and g[p + 32]. With a = words[p] and the 16-bit piece b =
  // words[32 + p mod 8] >> 16 (p div 8):
  //   u = (2 (a >> 12) + 1) 2^-53           radius sqrt(-2 ln u), at most 8.57
  //   t = (2 (2^14 (a mod 2^12) + b mod 2^14) + 1) 2^-27 - 1/2, the angle pi t / 2 in (-pi/4, pi/4)
  //   bit 15 of b is the sign of the cosine, bit 14 gives the cosine to the second half instead of the first.
  // So there are 2^52 radii and 2^28 directions, and a draw beyond 8.57 deviations, of probability below
  // 2^-56, never occurs. Each g differs from the formula's by less than 2^-33 of itself.
  //
  // No branch and no address depends on the random words. Division and square root take the same time for all
  // normal operands on recent processors, but not on every older one.
  void (*scale_and_add_gaussian)(const float* in, float* out, const std::uint64_t* words, std::size_t groups,
                                 double factor, double deviation);
};

extern const NoiseKernels kNoiseKernelsScalar;
extern const NoiseKernels kNoiseKernelsAvx2;
extern const NoiseKernels kNoiseKernelsAvx512;

// Precondition: this processor supports `set`.
const NoiseKernels& noise_kernels(InstructionSet set);

}  // namespace shieldfl::noise
