#include <arm_neon.h>

#include "mask/word_kernels.h"

namespace shieldfl::mask {
namespace {

constexpr std::uint8_t kBitOfByte[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};

// Per byte.
uint8x16_t bits_in(const std::uint64_t* two_words) {
  return vcntq_u8(vreinterpretq_u8_u64(vld1q_u64(two_words)));
}

// Per word.
uint64x2_t by_word(uint8x16_t counts) {
  return vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(counts)));
}

std::uint64_t count(const std::uint64_t* from, std::size_t words) {
  uint64x2_t sums = vdupq_n_u64(0);
  std::size_t w = 0;
  for (; w + 8 <= words; w += 8) {
    // At most 32 in each byte.
    const uint8x16_t low = vaddq_u8(bits_in(from + w), bits_in(from + w + 2));
    const uint8x16_t high = vaddq_u8(bits_in(from + w + 4), bits_in(from + w + 6));
    sums = vaddq_u64(sums, by_word(vaddq_u8(low, high)));
  }
  std::uint64_t total = vaddvq_u64(sums);
  for (; w < words; ++w) total += vaddv_u8(vcnt_u8(vcreate_u8(from[w])));
  return total;
}

std::uint64_t from_bytes(const std::uint8_t* bytes, std::uint64_t* out, std::size_t words) {
  const uint8x16_t own_bit = vld1q_u8(kBitOfByte);
  std::uint64_t set = 0;
  for (std::size_t w = 0; w < words; ++w) {
    uint8x16_t bits[4];
    for (std::size_t part = 0; part < 4; ++part) {
      const uint8x16_t values = vld1q_u8(bytes + 64 * w + 16 * part);
      bits[part] = vandq_u8(vtstq_u8(values, values), own_bit);
    }
    // Neighbours are added, three times: eight bits become a byte.
    const uint8x16_t pairs = vpaddq_u8(vpaddq_u8(bits[0], bits[1]), vpaddq_u8(bits[2], bits[3]));
    const uint8x8_t word = vget_low_u8(vpaddq_u8(pairs, pairs));
    vst1_u64(out + w, vreinterpret_u64_u8(word));
    set += vaddv_u8(vcnt_u8(word));
  }
  return set;
}

void to_bytes(const std::uint64_t* from, std::uint8_t* bytes, std::size_t words) {
  const uint8x16_t own_bit = vld1q_u8(kBitOfByte);
  for (std::size_t w = 0; w < words; ++w) {
    const uint8x16_t word = vreinterpretq_u8_u64(vld1q_dup_u64(from + w));
    // Two bytes of the word, eight times each.
    uint8x16_t of_word = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    for (std::size_t part = 0; part < 4; ++part) {
      const uint8x16_t chosen = vtstq_u8(vqtbl1q_u8(word, of_word), own_bit);
      vst1q_u8(bytes + 64 * w + 16 * part, vshrq_n_u8(chosen, 7));
      of_word = vaddq_u8(of_word, vdupq_n_u8(2));
    }
  }
}

}  // namespace

const WordKernels kWordKernelsNeon = {count, from_bytes, to_bytes};

}  // namespace shieldfl::mask
