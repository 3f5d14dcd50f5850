#include <cstdint>
#include <random>
#include <vector>

#include "ring/bit_packing.h"
#include "tests/check.h"

using namespace shieldfl;
using namespace shieldfl::ring;

namespace {

using Residues = std::vector<std::uint64_t>;
using Bytes = std::vector<std::uint8_t>;

Bytes pack(const Residues& residues, unsigned bits) {
  Bytes bytes(packed_bytes(residues.size(), bits), 0xee);
  pack_residues(residues, bits, bytes);
  return bytes;
}

// Bit by bit, as the header says it.
Bytes naive_pack(const Residues& residues, unsigned bits) {
  Bytes bytes((residues.size() * bits + 7) / 8, 0);
  for (std::size_t i = 0; i < residues.size() * bits; ++i) {
    const auto bit = static_cast<unsigned>((residues[i / bits] >> (i % bits)) & 1);
    bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | bit << (i % 8));
  }
  return bytes;
}

}  // namespace

TEST(residues_survive_packing_at_every_width) {
  std::mt19937_64 generator(61);
  for (unsigned bits = 1; bits <= 61; ++bits) {
    const std::uint64_t largest = (std::uint64_t{1} << bits) - 1;
    for (const std::size_t count : {0, 1, 2, 3, 7, 8, 9, 31, 64, 65, 127, 1000}) {
      Residues random(count);
      for (std::uint64_t& value : random) value = generator() & largest;
      for (const Residues& residues : {random, Residues(count, largest), Residues(count, 0)}) {
        const Bytes bytes = pack(residues, bits);
        CHECK(bytes == naive_pack(residues, bits));
        Residues unpacked(count, 0xdead);
        unpack_residues(bytes, bits, unpacked);
        CHECK(unpacked == residues);
      }
    }
  }
}

TEST(packed_residues_have_these_bytes) {
  // 5 bits each, lowest first: 00001 00010 11111 is 1 | 2 << 5 | 31 << 10.
  CHECK(pack({1, 2, 31}, 5) == (Bytes{0x41, 0x7c}));
  CHECK(pack({0xabc, 0xdef}, 12) == (Bytes{0xbc, 0xfa, 0xde}));
  CHECK(pack({1}, 61) == (Bytes{1, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(packed_bytes(0, 50) == 0 && packed_bytes(1, 50) == 7 && packed_bytes(2048, 50) == 12800);
}
