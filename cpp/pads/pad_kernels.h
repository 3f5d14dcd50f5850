// Arithmetic on words under pads, one table for each instruction set. Constant-time in words and pads.
//
// Pad number i of a block is number i of the block's key stream, of 32 bits where words have no more, of 64
// bits otherwise, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::pads {

struct PadKernels {
  // out[i] = (in[i] + pad i) & mask; `in` and `out` may be the same. `stream`: the pads, in words of 64 bits.
  void (*add_short_pads)(const std::uint64_t* in, const std::uint64_t* stream, std::size_t count,
                         std::uint64_t mask, std::uint64_t* out);
  void (*add_long_pads)(const std::uint64_t* in, const std::uint64_t* stream, std::size_t count,
                        std::uint64_t mask, std::uint64_t* out);
  // Writes what `words` hold under `pads`, modulo 2^field_bits, 2 <= field_bits <= 54, with a sign, times
  // `unit`. Returns 0 if all are at most max_sum < 2^53 in magnitude, and something else if not.
  std::uint64_t (*take_sums)(const std::uint64_t* words, const std::uint64_t* pads, std::size_t count,
                             unsigned field_bits, std::uint64_t max_sum, double unit, double* out);
};

extern const PadKernels kPadKernelsScalar;
extern const PadKernels kPadKernelsAvx2;
extern const PadKernels kPadKernelsAvx512;

const PadKernels& pad_kernels(InstructionSet set);

}  // namespace shieldfl::pads
