// The arithmetic of the fast Walsh-Hadamard transform, one table of functions per instruction set, for float
// and for double.
//
// Stage s of the transform of 2^k values replaces every pair a = x[i], b = x[i + 2^s], where bit s of i is 0,
// by a + b and a - b; the stages go from 0 to k - 1. Each is one IEEE addition or subtraction, so that all
// tables give the same bits, however the stages are grouped. No branch and no address depends on values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl {
enum class InstructionSet : std::uint8_t;
}

namespace shieldfl::noise {

template <typename T>
struct RotationKernels {
  // values[i] *= factor, and is negated where bit i of `signs` is set (word i / 64, the lowest bit first).
  void (*scale_and_sign)(T* values, const std::uint64_t* signs, std::size_t count, T factor);

  // All stages for 2^log2_count values, which should fit the processor's first cache.
  void (*transform)(T* values, unsigned log2_count);

  // Stages s to s + stages - 1, where stride = 2^s, of the 2^stages rows of `columns` values each that begin
  // at from, from + from_stride, from + 2 from_stride, ... and whose places in the transform are `stride`
  // apart. The results go to rows at to, to + to_stride, ..., which are the same memory or share none.
  // Preconditions: 1 <= stages <= kMostStages, and `columns` is a multiple of 16.
  void (*combine_rows)(const T* from, std::size_t from_stride, T* to, std::size_t to_stride, unsigned stages,
                       std::size_t columns);
};

// Rows are powers of two apart, so that in a cache they compete for the same places: eight have room there,
// while sixteen take two and a half times as long.
inline constexpr unsigned kMostStages = 3;

using FloatRotationKernels = RotationKernels<float>;
using DoubleRotationKernels = RotationKernels<double>;

extern const FloatRotationKernels kFloatRotationScalar;
extern const FloatRotationKernels kFloatRotationAvx2;
extern const FloatRotationKernels kFloatRotationAvx512;
extern const DoubleRotationKernels kDoubleRotationScalar;
extern const DoubleRotationKernels kDoubleRotationAvx2;
extern const DoubleRotationKernels kDoubleRotationAvx512;

// Precondition: this processor supports `set`.
template <typename T>
const RotationKernels<T>& rotation_kernels(InstructionSet set);

}  // namespace shieldfl::noise
