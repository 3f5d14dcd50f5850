// Residues on the wire: `bits` each, lowest first, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shieldfl::ring {

// The bytes that `count` residues take; a multiple of 8 residues fills whole bytes.
constexpr std::size_t packed_bytes(std::size_t count, unsigned bits) {
  return (count * bits + 7) / 8;
}

// Preconditions: 1 <= bits <= 61, every residue is below 2^bits, out has packed_bytes(in.size(), bits) bytes.
// Bits past the last residue are written as zero.
void pack_residues(std::span<const std::uint64_t> in, unsigned bits, std::span<std::uint8_t> out);

// The inverse. Precondition: in has packed_bytes(out.size(), bits) bytes.
void unpack_residues(std::span<const std::uint8_t> in, unsigned bits, std::span<std::uint64_t> out);

}  // namespace shieldfl::ring
