// Arithmetic on rows of residues, one table for each instruction set: all that encryption and opening do to a
// row besides the NTT. Constant-time in rows, samples and values. Rows hold residues in [0, q).
//
// The vector sets take moduli below 2^50 and a `count` that is a multiple of 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::ring {

struct RowKernels {
  // row[i] = samples[i] mod q, for |samples[i]| < q.
  void (*from_samples)(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row);
  // row[i] = row[i] + samples[i] mod q.
  void (*add_samples)(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row);
  // row[i] = row[i] + other[i] mod q.
  void (*add_row)(const std::uint64_t* other, std::size_t count, std::uint64_t q, std::uint64_t* row);
  // row[i] = row[i] + values[i] * factor mod q, for |values[i]| < 2^40 (which may exceed q) and factor < q.
  void (*add_scaled)(const std::int64_t* values, std::size_t count, std::uint64_t factor, std::uint64_t q,
                     std::uint64_t* row);
  // From residues modulo q0 and q1 to the digits of the number modulo q0 q1 = digit0 + q0 digit1, in place:
  // row0 stays; row1[i] = (row1[i] - row0[i]) * inverse mod q1, inverse = q0^-1 mod q1. q0 < 2 q1.
  void (*to_digits)(const std::uint64_t* row0, std::uint64_t* row1, std::size_t count, std::uint64_t inverse,
                    std::uint64_t q1);
  // The way back: row1[i] = row1[i] * factor + row0[i] mod q1, factor = q0 mod q1, row0[i] < 2 q1.
  void (*from_digits)(const std::uint64_t* row0, std::uint64_t* row1, std::size_t count, std::uint64_t factor,
                      std::uint64_t q1);
};

extern const RowKernels kRowKernelsScalar;
extern const RowKernels kRowKernelsNeon;    // on 64-bit ARM alone
extern const RowKernels kRowKernelsAvx2;    // on x86-64 alone
extern const RowKernels kRowKernelsAvx512;  // on x86-64 alone

const RowKernels& row_kernels(InstructionSet set);

// What the vector sets rely on; of a row that is read, too.
bool fits_vectors(std::size_t count, std::uint64_t q);
bool is_vector_row(const std::uint64_t* row, std::size_t count, std::uint64_t q);

}  // namespace shieldfl::ring
