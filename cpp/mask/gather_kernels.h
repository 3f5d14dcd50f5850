// Collecting the values at the set bits of words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::mask {

// The first `count` values, in ascending order, among those that have their bits set: bit i of word w stands
// for dense[64 w + i], and `first` is taken in place of words[0]. `words` goes on until that many bits are
// set. Writes nothing past out[count - 1], and reads nothing past the word of the last value.
template <typename T>
using GatherKernel = void (*)(const T* dense, const std::uint64_t* words, std::uint64_t first, T* out,
                              std::size_t count);

struct GatherKernels {
  GatherKernel<float> floats;
  GatherKernel<double> doubles;
};

extern const GatherKernels kGatherKernelsScalar;
extern const GatherKernels kGatherKernelsAvx2;
extern const GatherKernels kGatherKernelsAvx512;

// The kernels of a set that this processor has.
const GatherKernels& gather_kernels(InstructionSet set);

// The one of them for T, float or double.
template <typename T>
GatherKernel<T> gather_kernel(InstructionSet set);
template <>
GatherKernel<float> gather_kernel(InstructionSet set);
template <>
GatherKernel<double> gather_kernel(InstructionSet set);

}  // namespace shieldfl::mask
