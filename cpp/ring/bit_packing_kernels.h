// The functions of bit_packing.h, one set of them per instruction set. None reads or writes a byte outside
// its rows: a row may end where a page ends, and its neighbour in a frame may be another thread's.
//
// A packed row has (count * bits + 7) / 8 bytes; the limits on bits and dropped_bits are those of
// PackedWidth.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::ring {

struct BitPackingKernels {
  void (*pack)(const std::uint64_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
               std::uint8_t* out);
  void (*unpack)(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                 std::uint64_t* out);
  // Returns whether no field is above largest_field, which is below 2^61. What lies in the last byte past the
  // last field does not count, here and in in_range.
  bool (*accumulate)(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                     std::uint64_t largest_field, std::uint64_t* sums);
  void (*subtract)(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                   std::uint64_t* sums);
  bool (*in_range)(const std::uint8_t* in, std::size_t count, unsigned bits, std::uint64_t largest_field);
};

extern const BitPackingKernels kBitPackingKernelsScalar;
extern const BitPackingKernels kBitPackingKernelsNeon;    // on 64-bit ARM alone
extern const BitPackingKernels kBitPackingKernelsAvx2;    // on x86-64 alone
extern const BitPackingKernels kBitPackingKernelsAvx512;  // on x86-64 alone

// Precondition: the set is not above best_instruction_set().
const BitPackingKernels& bit_packing_kernels(InstructionSet set);

}  // namespace shieldfl::ring
