#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "common/blake2b_kernels.h"
#include "common/cpu_features.h"
#include "common/digest.h"
#include "common/random.h"
#include "tests/check.h"

namespace common_blake2b_kernels_tests {

using namespace shieldfl;

namespace {

std::vector<const Blake2bKernels*> all_kernels() {
  std::vector<const Blake2bKernels*> kernels;
  for (const InstructionSet set : supported_instruction_sets()) {
    kernels.push_back(&blake2b_kernels(set));
  }
  return kernels;
}

}  // namespace

TEST(every_blake2b_kernel_gives_the_digest_of_rfc_7693) {
  // A plain hash is a node too. Python: hashlib.blake2b(bytes(range(128)), digest_size=32).
  constexpr Digest kExpected = {0xc3, 0x58, 0x2f, 0x71, 0xeb, 0xb2, 0xbe, 0x66, 0xfa, 0x5d, 0xd7,
                                0x50, 0xf8, 0x0b, 0xaa, 0xe9, 0x75, 0x54, 0xf3, 0xb0, 0x15, 0x66,
                                0x3c, 0x8b, 0xe3, 0x77, 0xcf, 0xcb, 0x24, 0x88, 0xc1, 0xd1};
  std::array<std::uint8_t, kBlake2bBlockBytes> data;
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i);
  const Blake2bParameters plain = {0x01010020};
  for (const Blake2bKernels* const kernels : all_kernels()) {
    Digest digest;
    kernels->leaves(plain.data(), data.data(), data.size(), 1, digest.data());
    CHECK(digest == kExpected);
  }
}

TEST(every_blake2b_kernel_gives_the_digests_of_seal) {
  RandomStream words(InsecureTestRandom(62).next(), 0);
  for (const std::size_t leaf_bytes : {128u, 256u, 640u}) {
    for (std::size_t leaves = 1; leaves <= 19; ++leaves) {
      Blake2bParameters parameters;
      for (std::uint64_t& word : parameters) word = words.next_u64();
      parameters[0] = parameters[0] << 16 | 0x20;  // 32 bytes without a key
      // Where the number of a leaf is longer than 32 bits, it is so in both.
      parameters[1] = 0xffffffff - 5;
      // One byte off alignment, and a margin that nobody may touch.
      std::vector<std::uint8_t> data(leaf_bytes * leaves + 1);
      for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(words.next_u64());
      std::vector<std::uint8_t> expected(leaves * sizeof(Digest) + 50, 0xa5);
      for (std::size_t leaf = 0; leaf < leaves; ++leaf) {
        Blake2bParameters own = parameters;
        own[1] += leaf;
        const std::span bytes(data.data() + 1 + leaf * leaf_bytes, leaf_bytes);
        std::ranges::copy(node_digest(own, bytes, false), expected.data() + leaf * sizeof(Digest));
      }
      for (const Blake2bKernels* const kernels : all_kernels()) {
        std::vector<std::uint8_t> digests(expected.size(), 0xa5);
        kernels->leaves(parameters.data(), data.data() + 1, leaf_bytes, leaves, digests.data());
        CHECK(digests == expected);
      }
    }
  }
}

}  // namespace common_blake2b_kernels_tests
