// Four doubles, or four 64-bit integers, in a vector, for the AVX2 kernels of the ring alone: what
// double_lanes.h does its arithmetic with.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace shieldfl::ring {
namespace {

// Both have the compiler's operators.
using Lanes = __m256d;
using Integers = __m256i;

constexpr std::size_t kLanes = 4;

inline Lanes as_lanes(Integers x) {
  return _mm256_castsi256_pd(x);
}

inline Integers as_integers(Lanes x) {
  return _mm256_castpd_si256(x);
}

inline Lanes load(const std::uint64_t* from) {
  return _mm256_castsi256_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline void store(std::uint64_t* to, Lanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_castpd_si256(x));
}

inline Lanes broadcast(double value) {
  return _mm256_set1_pd(value);
}

inline Lanes broadcast(const std::uint64_t* from) {
  return _mm256_castsi256_pd(_mm256_set1_epi64x(static_cast<long long>(*from)));
}

// The mask of the first `count` < 4 lanes, and access to them alone; others are loaded as zero.
inline __m256i first_lanes(std::size_t count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(count)), _mm256_set_epi64x(3, 2, 1, 0));
}

inline Lanes load_some(const std::uint64_t* from, __m256i lanes) {
  return _mm256_castsi256_pd(_mm256_maskload_epi64(reinterpret_cast<const long long*>(from), lanes));
}

inline void store_some(std::uint64_t* to, __m256i lanes, Lanes x) {
  _mm256_maskstore_epi64(reinterpret_cast<long long*>(to), lanes, _mm256_castpd_si256(x));
}

inline Lanes or_bits(Lanes a, Lanes b) {
  return _mm256_or_pd(a, b);
}

inline Lanes xor_bits(Lanes a, Lanes b) {
  return _mm256_xor_pd(a, b);
}

// `value` where x < 0, else 0.
inline Lanes keep_where_negative(Lanes value, Lanes x) {
  return _mm256_and_pd(value, _mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_LT_OQ));
}

// a b + c, a b - c and c - a b, rounded once.
inline Lanes fused_sum(Lanes a, Lanes b, Lanes c) {
  return _mm256_fmadd_pd(a, b, c);
}

inline Lanes fused_difference(Lanes a, Lanes b, Lanes c) {
  return _mm256_fmsub_pd(a, b, c);
}

inline Lanes fused_rest(Lanes c, Lanes a, Lanes b) {
  return _mm256_fnmadd_pd(a, b, c);
}

// Elements 0, 0, 2, 2.
inline Lanes load_even_twice(const std::uint64_t* from) {
  return _mm256_movedup_pd(load(from));
}

// Elements 0, 1, 4, 5.
inline Lanes load_pairs(const std::uint64_t* from) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 4));
  return _mm256_castsi256_pd(_mm256_set_m128i(high, low));
}

// Brings elements two apart to the same place of two vectors, and back:
// (0 1 2 3), (8 9 10 11) <-> (0 1 8 9), (2 3 10 11).
inline void exchange_halves(Lanes& a, Lanes& b) {
  const Lanes low = _mm256_permute2f128_pd(a, b, 0x20);
  b = _mm256_permute2f128_pd(a, b, 0x31);
  a = low;
}

// The same for neighbours: (0 1 8 9), (2 3 10 11) <-> (0 2 8 10), (1 3 9 11). Integer instructions, because
// they have twice the throughput of their twins for doubles.
inline void exchange_neighbours(Lanes& a, Lanes& b) {
  const __m256i x = _mm256_castpd_si256(a);
  const __m256i y = _mm256_castpd_si256(b);
  a = _mm256_castsi256_pd(_mm256_unpacklo_epi64(x, y));
  b = _mm256_castsi256_pd(_mm256_unpackhi_epi64(x, y));
}

inline Integers load_integers(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

inline Integers load_samples(const std::int8_t* from) {
  return _mm256_cvtepi8_epi64(_mm_loadu_si32(from));
}

inline void store_integers(std::uint64_t* to, Integers x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
}

inline Integers broadcast_integer(std::uint64_t value) {
  return _mm256_set1_epi64x(static_cast<long long>(value));
}

// All ones where x < 0, else 0.
inline Integers negative(Integers x) {
  return _mm256_cmpgt_epi64(_mm256_setzero_si256(), x);
}

}  // namespace
}  // namespace shieldfl::ring
