#include "ring/bit_packing.h"

#include <cstring>

#include "ring/modulus.h"

namespace shieldfl::ring {

void pack_residues(std::span<const std::uint64_t> in, unsigned bits, std::span<std::uint8_t> out) {
  UInt128 pending = 0;
  unsigned pending_bits = 0;
  std::size_t position = 0;
  for (const std::uint64_t residue : in) {
    pending |= static_cast<UInt128>(residue) << pending_bits;
    pending_bits += bits;
    if (pending_bits >= 64) {
      const auto word = static_cast<std::uint64_t>(pending);
      std::memcpy(out.data() + position, &word, sizeof word);
      position += sizeof word;
      pending >>= 64;
      pending_bits -= 64;
    }
  }
  for (; position < out.size(); ++position, pending >>= 8) out[position] = static_cast<std::uint8_t>(pending);
}

void unpack_residues(std::span<const std::uint8_t> in, unsigned bits, std::span<std::uint64_t> out) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  UInt128 pending = 0;
  unsigned pending_bits = 0;
  std::size_t position = 0;
  for (std::uint64_t& residue : out) {
    if (pending_bits < bits) {
      if (in.size() - position >= sizeof(std::uint64_t)) {
        std::uint64_t word;
        std::memcpy(&word, in.data() + position, sizeof word);
        position += sizeof word;
        pending |= static_cast<UInt128>(word) << pending_bits;
        pending_bits += 64;
      } else {
        for (; position < in.size(); ++position, pending_bits += 8) {
          pending |= static_cast<UInt128>(in[position]) << pending_bits;
        }
      }
    }
    residue = static_cast<std::uint64_t>(pending) & mask;
    pending >>= bits;
    pending_bits -= bits;
  }
}

}  // namespace shieldfl::ring
