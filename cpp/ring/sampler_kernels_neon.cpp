#include <arm_neon.h>

#include "ring/coin_counts.h"
#include "ring/sampler_kernels.h"

namespace shieldfl::ring {
namespace {

// Where the samples come from, of eight, that a byte of bits keeps: the numbers of its bits that are set.
struct KeptOfEight {
  std::uint8_t numbers[256][8];
};

constexpr KeptOfEight kept_of_eight() {
  KeptOfEight table{};
  for (unsigned keep = 0; keep < 256; ++keep) {
    std::size_t kept = 0;
    for (unsigned i = 0; i < 8; ++i) {
      if ((keep >> i & 1) != 0) table.numbers[keep][kept++] = static_cast<std::uint8_t>(i);
    }
  }
  return table;
}

constexpr KeptOfEight kKeptOfEight = kept_of_eight();

// Byte i is all ones where bit i of the two bytes that `of_word` names is set, else 0.
uint8x16_t bits_to_bytes(std::uint64_t word, uint8x16_t of_word) {
  constexpr std::uint8_t kBitOfByte[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  return vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_u64(vdupq_n_u64(word)), of_word), vld1q_u8(kBitOfByte));
}

// Byte i: the bits set in bytes 0 to i.
std::uint64_t counts_up_to(std::uint64_t word) {
  const uint64x1_t counts = vreinterpret_u64_u8(vcnt_u8(vcreate_u8(word)));
  return vget_lane_u64(counts, 0) * 0x0101010101010101;
}

// Where samples go, and which table moves them there, depends on what is rejected alone.
std::size_t ternary(const std::uint64_t* words, const std::uint64_t* rejected, std::size_t pairs,
                    std::int8_t* out) {
  std::size_t kept = 0;
  for (std::size_t p = 0; p < pairs; ++p) {
    const std::uint64_t keep = ~rejected[p];
    const std::uint64_t ends = counts_up_to(keep);
    const std::uint64_t starts = ends << 8;
    uint8x16_t of_word = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
#pragma GCC unroll 4
    for (unsigned byte = 0; byte < 8; byte += 2) {
      const uint8x16_t samples =
          vsubq_u8(bits_to_bytes(words[2 * p + 1], of_word), bits_to_bytes(words[2 * p], of_word));
      const uint8x8_t halves[] = {vget_low_u8(samples), vget_high_u8(samples)};
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned shift = 8 * (byte + half);
        const uint8x8_t order = vld1_u8(kKeptOfEight.numbers[(keep >> shift) & 0xff]);
        vst1_s8(out + kept + ((starts >> shift) & 0xff), vreinterpret_s8_u8(vtbl1_u8(halves[half], order)));
      }
      of_word = vaddq_u8(of_word, vdupq_n_u8(2));
    }
    kept += ends >> 56;
  }
  return kept;
}

using Words = std::uint64_t __attribute__((vector_size(16)));

Words load(const std::uint64_t* words) {
  return reinterpret_cast<Words>(vld1q_u64(words));
}

void error(const std::uint64_t* words, std::size_t groups, std::int8_t* out) {
  // Byte j of word i goes to sample 8 j + i. Words 4 and on lie behind those of words 0 and on, in the same
  // lane.
  constexpr std::uint8_t kFirst[16] = {0, 8, 16, 24, 4, 12, 20, 28, 1, 9, 17, 25, 5, 13, 21, 29};
  constexpr std::uint8_t kLast[8] = {2, 10, 18, 26, 6, 14, 22, 30};
  const uint8x16_t first = vld1q_u8(kFirst);
  const uint8x8_t last = vld1_u8(kLast);
  for (std::size_t group = 0; group < groups; ++group) {
    uint8x16x2_t counts;
    for (std::size_t i = 0; i < 2; ++i) {
      const Words front = shifted_differences(load(words + 2 * i), load(words + 8 + 2 * i));
      const Words back = shifted_differences(load(words + 4 + 2 * i), load(words + 12 + 2 * i));
      counts.val[i] = reinterpret_cast<uint8x16_t>(front | back << 32);
    }
    const uint8x16_t samples = vsubq_u8(vqtbl2q_u8(counts, first), vdupq_n_u8(kErrorCoins));
    const uint8x8_t others = vsub_u8(vqtbl2_u8(counts, last), vdup_n_u8(kErrorCoins));
    vst1q_s8(out, vreinterpretq_s8_u8(samples));
    vst1_s8(out + 16, vreinterpret_s8_u8(others));
    words += kErrorGroupWords;
    out += kErrorGroupSamples;
  }
}

}  // namespace

const SamplerKernels kSamplerKernelsNeon = {ternary, error};

}  // namespace shieldfl::ring
