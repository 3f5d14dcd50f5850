// Residues on the wire: fields of `bits` bits, lowest first, without gaps. Low-order bits that carry noise
// alone may stay behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shieldfl::ring {

// How one row of residues travels: `bits` of each, after its lowest `dropped_bits` are cut off.
// 1 <= bits, dropped_bits <= 20 and bits + dropped_bits <= 61, the length of the modulus in bits.
struct PackedWidth {
  unsigned bits;
  unsigned dropped_bits;
};

// The bytes that `count` residues take; a multiple of 8 residues fills whole bytes.
constexpr std::size_t packed_bytes(std::size_t count, unsigned bits) {
  return (count * bits + 7) / 8;
}

// Writes in[i] >> dropped_bits; bits past the last field are written as zero.
// Every residue is below 2^(bits + dropped_bits), out has packed_bytes(in.size(), bits) bytes.
void pack_residues(std::span<const std::uint64_t> in, PackedWidth width, std::span<std::uint8_t> out);

// Residue i becomes the middle of those that pack to field i: (field << dropped_bits) + 2^(dropped_bits - 1),
// or the field itself where nothing was dropped. `in` has packed_bytes(out.size(), bits) bytes.
void unpack_residues(std::span<const std::uint8_t> in, PackedWidth width, std::span<std::uint64_t> out);

// Adds the unpacked residues to the sums, without reduction. Returns whether residues_in_range would; every
// sum is added to in either case, so that subtract_residues undoes it. Preconditions: 1 < modulus <= 2^61, in
// has packed_bytes(sums.size(), bits) bytes.
[[nodiscard]] bool accumulate_residues(std::span<const std::uint8_t> in, PackedWidth width,
                                       std::uint64_t modulus, std::span<std::uint64_t> sums);

// Subtracts the unpacked residues from the sums. Precondition: in has packed_bytes(sums.size(), bits) bytes.
void subtract_residues(std::span<const std::uint8_t> in, PackedWidth width, std::span<std::uint64_t> sums);

// Whether pack_residues can have written this from residues below the modulus: no field is above
// (modulus - 1) >> dropped_bits, and the bits past the last field are zero.
// Preconditions: 1 < modulus <= 2^61, in has packed_bytes(count, bits) bytes.
[[nodiscard]] bool residues_in_range(std::span<const std::uint8_t> in, PackedWidth width,
                                     std::uint64_t modulus, std::size_t count);

}  // namespace shieldfl::ring
