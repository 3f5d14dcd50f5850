// Taking coefficients, and the sums that are packed in them, apart: one table for each instruction set.
// Constant-time in coefficients and sums.
//
// A packed number is 128 bits long, its halves in `low` and `high`; a sum s is in its lowest field_bits bits
// as s + 2^(field_bits - 1), 2 <= field_bits <= 54.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"
#include "ring/modulus.h"

namespace shieldfl::rlwe {

// How a coefficient modulo q0, or q0 q1, becomes a packed number: as x in [0, modulus), it stands for x where
// that is at most `most`, and for x - modulus above; the packed number is (that + added) / 2^shift, rounded
// down.
struct MessageRounding {
  std::uint64_t q0;  // below 2^50, and so is q1
  ring::Int128 modulus;
  ring::Int128 most;
  ring::Int128 added;  // below 2^114 in magnitude
  unsigned shift;      // 1 to 63
};

struct FieldKernels {
  // Writes the packed numbers of `count` coefficients, given as digits of q0 and q1. `digit1` is null where
  // there is one prime alone.
  void (*read_messages)(const MessageRounding& rounding, const std::uint64_t* digit0,
                        const std::uint64_t* digit1, std::size_t count, std::uint64_t* low,
                        std::uint64_t* high);
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
