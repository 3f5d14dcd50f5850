// Eight words at a time, for files that are compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace shieldfl::mask {
namespace {

struct Avx512Lanes {
  using Vector = __m512i;
  static constexpr std::size_t kWords = 8;

  static Vector zero() { return _mm512_setzero_si512(); }
  static Vector load(const std::uint64_t* from) { return _mm512_loadu_si512(from); }
  static void store(std::uint64_t* to, Vector v) { _mm512_storeu_si512(to, v); }
  // The first `words` words, fewer than kWords; zeros for the others.
  static Vector load_some(const std::uint64_t* from, std::size_t words) {
    return _mm512_maskz_loadu_epi64(first(words), from);
  }
  static void store_some(std::uint64_t* to, Vector v, std::size_t words) {
    _mm512_mask_storeu_epi64(to, first(words), v);
  }

  // The truth tables of a ^ b ^ c and of "at least two of a, b, c".
  static Vector parity(Vector a, Vector b, Vector c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
  static Vector majority(Vector a, Vector b, Vector c) { return _mm512_ternarylogic_epi64(a, b, c, 0xe8); }
  static bool any(Vector v) { return _mm512_test_epi64_mask(v, v) != 0; }

  // The number of set bits per word.
  static Vector count(Vector v) { return _mm512_popcnt_epi64(v); }
  static std::uint64_t total(Vector v) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kWords; ++i) sum += static_cast<std::uint64_t>(v[i]);
    return sum;
  }

 private:
  static __mmask8 first(std::size_t words) { return static_cast<__mmask8>((1U << words) - 1); }
};

}  // namespace
}  // namespace shieldfl::mask
