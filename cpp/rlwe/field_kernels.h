// Taking packed sums apart, one table for each instruction set. Constant-time in the sums.
//
// A packed number is 128 bits long, its halves in `low` and `high`; a sum s is in its lowest field_bits bits
// as s + 2^(field_bits - 1), 2 <= field_bits <= 54.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::rlwe {

struct FieldKernels {
  // Removes the lowest field of `count` packed numbers and writes its sums times `unit`. Returns 0 if all of
  // them are at most max_sum in magnitude, and something else if not.
  std::uint64_t (*take_sums)(std::uint64_t* low, std::uint64_t* high, std::size_t count, unsigned field_bits,
                             std::uint64_t max_sum, double unit, double* out);
  // The same for fields that hold no value. Returns 0 if all sums are 0.
  std::uint64_t (*take_zeros)(std::uint64_t* low, std::uint64_t* high, std::size_t count,
                              unsigned field_bits);
};

extern const FieldKernels kFieldKernelsScalar;
extern const FieldKernels kFieldKernelsAvx2;
extern const FieldKernels kFieldKernelsAvx512;

const FieldKernels& field_kernels(InstructionSet set);

}  // namespace shieldfl::rlwe
