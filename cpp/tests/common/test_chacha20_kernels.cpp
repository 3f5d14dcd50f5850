#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/chacha20_kernels.h"
#include "common/cpu_features.h"
#include "common/random.h"
#include "tests/check.h"

namespace common_chacha20_kernels_tests {

using namespace shieldfl;

namespace {

std::vector<const ChaCha20Kernels*> all_kernels() {
  std::vector<const ChaCha20Kernels*> kernels;
  for (const InstructionSet set : supported_instruction_sets()) {
    kernels.push_back(&chacha20_kernels(set));
  }
  return kernels;
}

// The state of RFC 8439, section 2.3.2: key 00 01 .. 1f, nonce 00 00 00 09 00 00 00 4a 00 00 00 00.
std::array<std::uint32_t, 16> rfc_state(std::uint32_t counter) {
  return {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, 0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c,
          0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c, counter,    0x09000000, 0x4a000000, 0x00000000};
}

}  // namespace

TEST(every_chacha20_kernel_gives_the_block_of_rfc_8439) {
  // Section 2.3.2, counter 1.
  constexpr std::array<std::uint8_t, 64> kExpected = {
      0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15, 0x50, 0x0f, 0xdd, 0x1f, 0xa3, 0x20, 0x71, 0xc4,
      0xc7, 0xd1, 0xf4, 0xc7, 0x33, 0xc0, 0x68, 0x03, 0x04, 0x22, 0xaa, 0x9a, 0xc3, 0xd4, 0x6c, 0x4e,
      0xd2, 0x82, 0x64, 0x46, 0x07, 0x9f, 0xaa, 0x09, 0x14, 0xc2, 0xd7, 0x05, 0xd9, 0x8b, 0x02, 0xa2,
      0xb5, 0x12, 0x9c, 0xd1, 0xde, 0x16, 0x4e, 0xb9, 0xcb, 0xd0, 0x83, 0xe8, 0xa2, 0x50, 0x3c, 0x4e};
  for (const ChaCha20Kernels* const kernels : all_kernels()) {
    // The block by itself, and at each place of a run that the kernels take in different ways.
    for (std::uint32_t before = 0; before < 40; ++before) {
      std::vector<std::uint8_t> out(kChaCha20BlockBytes * (before + 1));
      kernels->blocks(rfc_state(1 - before).data(), before + 1, out.data());
      CHECK(std::equal(kExpected.begin(), kExpected.end(), out.end() - kChaCha20BlockBytes));
    }
  }
}

TEST(every_chacha20_kernel_gives_the_scalar_blocks) {
  const auto kernels = all_kernels();
  RandomStream words(InsecureTestRandom(61).next(), 0);
  for (std::size_t blocks = 0; blocks <= 70; ++blocks) {
    for (const std::uint32_t counter : {0u, 1u, 0x7fffffffu, 0xffffffffu - 20, 0xfffffff0u, 0xffffffffu}) {
      std::array<std::uint32_t, 16> state;
      for (std::uint32_t& word : state) word = static_cast<std::uint32_t>(words.next_u64());
      state[12] = counter;
      const auto before = state;
      // One byte off alignment, and a margin that nobody may touch.
      const std::size_t size = kChaCha20BlockBytes * blocks;
      std::vector<std::uint8_t> expected(size + 100, 0xa5);
      kernels[0]->blocks(state.data(), blocks, expected.data() + 1);
      for (const ChaCha20Kernels* const faster : kernels) {
        std::vector<std::uint8_t> out(size + 100, 0xa5);
        faster->blocks(state.data(), blocks, out.data() + 1);
        CHECK(out == expected);
        CHECK(state == before);
      }
    }
  }
}

TEST(chacha20_counters_go_on_from_the_last_to_zero) {
  for (const ChaCha20Kernels* const kernels : all_kernels()) {
    for (const std::uint32_t before_wrap : {1u, 3u, 15u, 16u, 17u}) {
      std::vector<std::uint8_t> run(kChaCha20BlockBytes * (before_wrap + 40));
      kernels->blocks(rfc_state(0u - before_wrap).data(), before_wrap + 40, run.data());
      std::vector<std::uint8_t> from_zero(kChaCha20BlockBytes * 40);
      kernels->blocks(rfc_state(0).data(), 40, from_zero.data());
      CHECK(std::equal(from_zero.begin(), from_zero.end(),
                       run.begin() + static_cast<std::ptrdiff_t>(kChaCha20BlockBytes * before_wrap)));
    }
  }
}

}  // namespace common_chacha20_kernels_tests
