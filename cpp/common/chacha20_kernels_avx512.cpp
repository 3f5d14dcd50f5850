#include <immintrin.h>

#include "common/chacha20_vectors.h"

namespace shieldfl {
namespace {

// Shuffles are the forms that zero what is masked out, and nothing is: the plain ones pass an undefined
// vector in some compilers, which these then warn of.
constexpr __mmask16 kAll16 = 0xffff;
constexpr __mmask8 kAll8 = 0xff;

struct Avx512 {
  using Words = std::uint32_t __attribute__((vector_size(64)));
  static constexpr std::size_t kLanes = 4;

  static __m512i raw(Words x) { return reinterpret_cast<__m512i>(x); }
  static Words words(__m512i x) { return reinterpret_cast<Words>(x); }

  static Words broadcast(std::uint32_t word) { return words(_mm512_set1_epi32(static_cast<int>(word))); }
  static Words broadcast_row(const std::uint32_t* row) {
    return words(
        _mm512_maskz_broadcast_i32x4(kAll16, _mm_loadu_si128(reinterpret_cast<const __m128i*>(row))));
  }
  static Words numbers() { return Words{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
  static Words lane_numbers() { return Words{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}; }

  template <int bits>
  static Words rotate(Words x) {
    return x << bits | x >> (32 - bits);
  }
  template <int by>
  static Words turn_lanes(Words x) {
    constexpr int kOrder = by % 4 | (1 + by) % 4 << 2 | (2 + by) % 4 << 4 | (3 + by) % 4 << 6;
    return words(_mm512_maskz_shuffle_epi32(kAll16, raw(x), static_cast<_MM_PERM_ENUM>(kOrder)));
  }

  static Words low_words(Words x, Words y) {
    return words(_mm512_maskz_unpacklo_epi32(kAll16, raw(x), raw(y)));
  }
  static Words high_words(Words x, Words y) {
    return words(_mm512_maskz_unpackhi_epi32(kAll16, raw(x), raw(y)));
  }
  static Words low_pairs(Words x, Words y) {
    return words(_mm512_maskz_unpacklo_epi64(kAll8, raw(x), raw(y)));
  }
  static Words high_pairs(Words x, Words y) {
    return words(_mm512_maskz_unpackhi_epi64(kAll8, raw(x), raw(y)));
  }

  static void store_blocks(Words a, Words b, Words c, Words d, std::size_t count, std::size_t stride,
                           std::uint8_t* out) {
    const __m512i ab_low = _mm512_maskz_shuffle_i32x4(kAll16, raw(a), raw(b), 0x44);  // a0 a1 b0 b1
    const __m512i ab_high = _mm512_maskz_shuffle_i32x4(kAll16, raw(a), raw(b), 0xee);
    const __m512i cd_low = _mm512_maskz_shuffle_i32x4(kAll16, raw(c), raw(d), 0x44);
    const __m512i cd_high = _mm512_maskz_shuffle_i32x4(kAll16, raw(c), raw(d), 0xee);
    _mm512_storeu_si512(out, _mm512_maskz_shuffle_i32x4(kAll16, ab_low, cd_low, 0x88));
    if (count > 1)
      _mm512_storeu_si512(out + stride, _mm512_maskz_shuffle_i32x4(kAll16, ab_low, cd_low, 0xdd));
    if (count > 2)
      _mm512_storeu_si512(out + 2 * stride, _mm512_maskz_shuffle_i32x4(kAll16, ab_high, cd_high, 0x88));
    if (count > 3)
      _mm512_storeu_si512(out + 3 * stride, _mm512_maskz_shuffle_i32x4(kAll16, ab_high, cd_high, 0xdd));
  }
};

}  // namespace

const ChaCha20Kernels kChaCha20KernelsAvx512 = {write_blocks<Avx512>};

}  // namespace shieldfl
