#include <arm_neon.h>

#include "common/chacha20_vectors.h"

namespace shieldfl {
namespace {

struct Neon {
  using Words = std::uint32_t __attribute__((vector_size(16)));
  static constexpr std::size_t kLanes = 1;

  static uint32x4_t raw(Words x) { return reinterpret_cast<uint32x4_t>(x); }
  static Words words(uint32x4_t x) { return reinterpret_cast<Words>(x); }

  static Words broadcast(std::uint32_t word) { return words(vdupq_n_u32(word)); }
  static Words broadcast_row(const std::uint32_t* row) { return words(vld1q_u32(row)); }
  static Words numbers() { return Words{0, 1, 2, 3}; }
  static Words lane_numbers() { return Words{}; }

  // Halves and whole bytes in one shuffle each; otherwise a shift, and one that inserts.
  template <int bits>
  static Words rotate(Words x) {
    if constexpr (bits == 16) {
      return words(vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(raw(x)))));
    } else if constexpr (bits == 8) {
      const uint8x16_t order = {3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14};
      return words(vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(raw(x)), order)));
    } else {
      return words(vsriq_n_u32(vshlq_n_u32(raw(x), bits), raw(x), 32 - bits));
    }
  }
  template <int by>
  static Words turn_lanes(Words x) {
    return words(vextq_u32(raw(x), raw(x), by));
  }

  static Words low_words(Words x, Words y) { return words(vzip1q_u32(raw(x), raw(y))); }
  static Words high_words(Words x, Words y) { return words(vzip2q_u32(raw(x), raw(y))); }
  static Words low_pairs(Words x, Words y) { return pairs(vzip1q_u64(pairs(x), pairs(y))); }
  static Words high_pairs(Words x, Words y) { return pairs(vzip2q_u64(pairs(x), pairs(y))); }

  static void store_blocks(Words a, Words b, Words c, Words d, std::size_t /*count*/, std::size_t /*stride*/,
                           std::uint8_t* out) {
    const Words rows[] = {a, b, c, d};
    for (const Words& row : rows) {
      vst1q_u8(out, vreinterpretq_u8_u32(raw(row)));
      out += sizeof row;
    }
  }

 private:
  static uint64x2_t pairs(Words x) { return vreinterpretq_u64_u32(raw(x)); }
  static Words pairs(uint64x2_t x) { return words(vreinterpretq_u32_u64(x)); }
};

}  // namespace

const ChaCha20Kernels kChaCha20KernelsNeon = {write_blocks<Neon>};

}  // namespace shieldfl
