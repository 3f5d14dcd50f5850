#include <immintrin.h>

#include "common/chacha20_vectors.h"

namespace shieldfl {
namespace {

struct Avx2 {
  using Words = std::uint32_t __attribute__((vector_size(32)));
  static constexpr std::size_t kLanes = 2;

  static __m256i raw(Words x) { return reinterpret_cast<__m256i>(x); }
  static Words words(__m256i x) { return reinterpret_cast<Words>(x); }

  static Words broadcast(std::uint32_t word) { return words(_mm256_set1_epi32(static_cast<int>(word))); }
  static Words broadcast_row(const std::uint32_t* row) {
    return words(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row))));
  }
  static Words numbers() { return Words{0, 1, 2, 3, 4, 5, 6, 7}; }
  static Words lane_numbers() { return Words{0, 0, 0, 0, 1, 0, 0, 0}; }

  template <int bits>
  static Words rotate(Words x) {
    // Whole bytes in one shuffle instead of two shifts.
    if constexpr (bits == 16) {
      const __m128i order = _mm_set_epi8(13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6, 1, 0, 3, 2);
      return words(_mm256_shuffle_epi8(raw(x), _mm256_broadcastsi128_si256(order)));
    }
    if constexpr (bits == 8) {
      const __m128i order = _mm_set_epi8(14, 13, 12, 15, 10, 9, 8, 11, 6, 5, 4, 7, 2, 1, 0, 3);
      return words(_mm256_shuffle_epi8(raw(x), _mm256_broadcastsi128_si256(order)));
    }
    return x << bits | x >> (32 - bits);
  }
  template <int by>
  static Words turn_lanes(Words x) {
    constexpr int kOrder = by % 4 | (1 + by) % 4 << 2 | (2 + by) % 4 << 4 | (3 + by) % 4 << 6;
    return words(_mm256_shuffle_epi32(raw(x), kOrder));
  }

  static Words low_words(Words x, Words y) { return words(_mm256_unpacklo_epi32(raw(x), raw(y))); }
  static Words high_words(Words x, Words y) { return words(_mm256_unpackhi_epi32(raw(x), raw(y))); }
  static Words low_pairs(Words x, Words y) { return words(_mm256_unpacklo_epi64(raw(x), raw(y))); }
  static Words high_pairs(Words x, Words y) { return words(_mm256_unpackhi_epi64(raw(x), raw(y))); }

  static void store_blocks(Words a, Words b, Words c, Words d, std::size_t count, std::size_t stride,
                           std::uint8_t* out) {
    const auto store = [](std::uint8_t* to, __m256i half) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
    };
    store(out, _mm256_permute2x128_si256(raw(a), raw(b), 0x20));
    store(out + 32, _mm256_permute2x128_si256(raw(c), raw(d), 0x20));
    if (count < 2) return;
    store(out + stride, _mm256_permute2x128_si256(raw(a), raw(b), 0x31));
    store(out + stride + 32, _mm256_permute2x128_si256(raw(c), raw(d), 0x31));
  }
};

}  // namespace

const ChaCha20Kernels kChaCha20KernelsAvx2 = {write_blocks<Avx2>};

}  // namespace shieldfl
