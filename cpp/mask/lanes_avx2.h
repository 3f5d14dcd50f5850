// Four words at a time, for files that are compiled for AVX2.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace shieldfl::mask {
namespace {

struct Avx2Lanes {
  using Vector = __m256i;
  static constexpr std::size_t kWords = 4;

  static Vector zero() { return _mm256_setzero_si256(); }
  static Vector load(const std::uint64_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::uint64_t* to, Vector v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }
  // The first `words` words, fewer than kWords; zeros for the others.
  static Vector load_some(const std::uint64_t* from, std::size_t words) {
    return _mm256_maskload_epi64(reinterpret_cast<const long long*>(from), first(words));
  }
  static void store_some(std::uint64_t* to, Vector v, std::size_t words) {
    _mm256_maskstore_epi64(reinterpret_cast<long long*>(to), first(words), v);
  }

  static Vector parity(Vector a, Vector b, Vector c) { return a ^ b ^ c; }
  static Vector majority(Vector a, Vector b, Vector c) { return (a & b) | ((a ^ b) & c); }
  static bool any(Vector v) { return _mm256_testz_si256(v, v) == 0; }

  // The number of set bits per word: looked up for every four bits.
  static Vector count(Vector v) {
    const Vector bits_of = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2,
                                            2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const Vector four_bits = _mm256_set1_epi8(0x0f);
    const Vector low = _mm256_shuffle_epi8(bits_of, v & four_bits);
    const Vector high = _mm256_shuffle_epi8(bits_of, _mm256_srli_epi16(v, 4) & four_bits);
    return _mm256_sad_epu8(_mm256_add_epi8(low, high), zero());
  }
  static std::uint64_t total(Vector v) {
    return static_cast<std::uint64_t>(v[0]) + static_cast<std::uint64_t>(v[1]) +
           static_cast<std::uint64_t>(v[2]) + static_cast<std::uint64_t>(v[3]);
  }

 private:
  static __m256i first(std::size_t words) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(words)),
                              _mm256_setr_epi64x(0, 1, 2, 3));
  }
};

}  // namespace
}  // namespace shieldfl::mask
