// The kernels of a share of distributed noise over the vectors of noise_vectors.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "noise/noise_vectors.h"
#include "noise/share_kernels.h"

namespace shieldfl::noise {
namespace {

using Integers = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
using StoredIntegers = std::int32_t
    __attribute__((vector_size(kLanes * sizeof(std::int32_t)), aligned(alignof(std::int32_t)), may_alias));

// As many words of 32 bits as two vectors of words have lanes: the halves of theirs.
constexpr std::size_t kHalves = 2 * kLanes;
using Halves = std::uint32_t __attribute__((vector_size(kHalves * sizeof(std::uint32_t))));
using SignedHalves = std::int32_t __attribute__((vector_size(kHalves * sizeof(std::int32_t))));
using StoredHalves = std::int32_t
    __attribute__((vector_size(kHalves * sizeof(std::int32_t)), aligned(alignof(std::int32_t)), may_alias));

SHIELDFL_NOISE_INLINE Doubles floor_of(Doubles x) {
#if SHIELDFL_NOISE_LANES == 8
  return _mm512_maskz_roundscale_pd(0xff, x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif SHIELDFL_NOISE_LANES == 4
  return _mm256_floor_pd(x);
#elif defined(__aarch64__)
  return vrndmq_f64(x);
#else
  constexpr double kToInteger = 0x1.8p52;
  const Doubles nearest = (x + kToInteger) - kToInteger;
  return nearest - (Doubles)((Words)(nearest > x) & (Words)(Doubles{} + 1.0));
#endif
}

// To one of the two integers next to it: see share_kernels.h. `bits` are below 2^32.
SHIELDFL_NOISE_INLINE Doubles rounded_by(Doubles x, Words bits) {
  constexpr std::uint64_t kTwoTo20 = 0x4130000000000000;
  const Doubles floor = floor_of(x);
  // 2^20 + r 2^-32 has r as its low bits; the difference is (r + 1/2) 2^-32.
  const Doubles limit = (Doubles)(bits | kTwoTo20) - (0x1p20 - 0x1p-33);
  return floor + (Doubles)((Words)(limit < x - floor) & (Words)(Doubles{} + 1.0));
}

// The squares of what the low halves hold.
SHIELDFL_NOISE_INLINE Words squares_of_low_halves(Words x) {
#if SHIELDFL_NOISE_LANES == 8
  return (Words)_mm512_maskz_mul_epu32(0xff, (__m512i)x, (__m512i)x);
#elif SHIELDFL_NOISE_LANES == 4
  return (Words)_mm256_mul_epu32((__m256i)x, (__m256i)x);
#elif defined(__SSE2__)
  return (Words)_mm_mul_epu32((__m128i)x, (__m128i)x);
#elif defined(__aarch64__)
  const uint32x2_t low = vmovn_u64((uint64x2_t)x);
  return (Words)vmull_u32(low, low);
#else
  return (x & 0xffffffff) * (x & 0xffffffff);
#endif
}

// A vector of values: what `round` does with them, but for the sum of the squares that it adds to.
SHIELDFL_NOISE_INLINE void round_vector(const float* values, std::int32_t* rounded, Words bits, double steps,
                                        Integers limit, Words& squares) {
  const Doubles result = rounded_by(load_doubles(values) * steps, bits);
  // |result| becomes the low bits of 2^52 + |result|.
  squares += squares_of_low_halves((Words)((Doubles)((Words)result & ~(std::uint64_t{1} << 63)) + 0x1p52));
  Integers integers = __builtin_convertvector(result, Integers);
  integers = integers > limit ? limit : integers;
  integers = integers < -limit ? -limit : integers;
  *reinterpret_cast<StoredIntegers*>(rounded) = integers;
}

std::uint64_t round(const float* values, std::int32_t* rounded, const std::uint64_t* words,
                    std::size_t groups, double steps, std::int32_t most) {
  constexpr std::size_t kHalf = kShareGroup / 2;
  static_assert(kHalf == kRoundingWordsPerGroup && kHalf % kLanes == 0);
  const Integers limit = Integers{} + most;
  Words squares = {};
  for (std::size_t group = 0; group < groups; ++group) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kHalf; i += kLanes) {
      const Words random = load_words(words + i);
      round_vector(values + i, rounded + i, random & 0xffffffff, steps, limit, squares);
      round_vector(values + kHalf + i, rounded + kHalf + i, random >> 32, steps, limit, squares);
    }
    values += kShareGroup;
    rounded += kShareGroup;
    words += kRoundingWordsPerGroup;
  }
  std::uint64_t total = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) total += squares[lane];
  return total;
}

// The low halves of the words, or where kHalf is 1 the high ones: those of `first` before those of `second`.
template <std::uint32_t kHalf>
SHIELDFL_NOISE_INLINE Halves halves(Words first, Words second) {
#if SHIELDFL_NOISE_LANES == 8
#define SHIELDFL_NOISE_EVERY_SECOND                                                                  \
  kHalf, kHalf + 2, kHalf + 4, kHalf + 6, kHalf + 8, kHalf + 10, kHalf + 12, kHalf + 14, kHalf + 16, \
      kHalf + 18, kHalf + 20, kHalf + 22, kHalf + 24, kHalf + 26, kHalf + 28, kHalf + 30
#elif SHIELDFL_NOISE_LANES == 4
#define SHIELDFL_NOISE_EVERY_SECOND \
  kHalf, kHalf + 2, kHalf + 4, kHalf + 6, kHalf + 8, kHalf + 10, kHalf + 12, kHalf + 14
#else
#define SHIELDFL_NOISE_EVERY_SECOND kHalf, kHalf + 2, kHalf + 4, kHalf + 6
#endif
#ifdef __clang__
  return __builtin_shufflevector((Halves)first, (Halves)second, SHIELDFL_NOISE_EVERY_SECOND);
#else
  return __builtin_shuffle((Halves)first, (Halves)second, Halves{SHIELDFL_NOISE_EVERY_SECOND});
#endif
#undef SHIELDFL_NOISE_EVERY_SECOND
}

// The buckets that the words choose. One by one: on a Zen 4 a gather takes a third longer, with AVX2 as with
// AVX-512.
SHIELDFL_NOISE_INLINE Words look_up(const std::uint64_t* buckets, const std::uint64_t* words,
                                    std::uint64_t mask) {
  const auto entry = [=](std::size_t lane) { return buckets[(words[lane] >> 1) & mask]; };
#if SHIELDFL_NOISE_LANES == 8
  return Words{entry(0), entry(1), entry(2), entry(3), entry(4), entry(5), entry(6), entry(7)};
#elif SHIELDFL_NOISE_LANES == 4
  return Words{entry(0), entry(1), entry(2), entry(3)};
#else
  return Words{entry(0), entry(1)};
#endif
}

bool add_draws_vartime(const std::int32_t* values, std::int32_t* sums, const std::uint64_t* words,
                       std::size_t groups, const std::uint64_t* buckets, std::uint64_t bucket_mask,
                       std::int32_t most) {
  static_assert(kShareGroup % kHalves == 0);
  const SignedHalves limit = SignedHalves{} + most;
  const Halves mask = Halves{} + static_cast<std::uint32_t>(bucket_mask);
  Halves equal = {};
  for (std::size_t i = 0; i < groups * kShareGroup; i += kHalves) {
    const Words entries = look_up(buckets, words + i, bucket_mask);
    const Words next_entries = look_up(buckets, words + i + kLanes, bucket_mask);
    const Words random = load_words(words + i);
    const Words next_random = load_words(words + i + kLanes);
    const Halves low = halves<0>(random, next_random);
    const Halves chance = halves<1>(random, next_random);
    const Halves threshold = halves<1>(entries, next_entries);
    equal |= (Halves)(chance == threshold);
    const Halves magnitude = chance < threshold ? (low >> 1) & mask : halves<0>(entries, next_entries);
    const Halves negative = Halves{} - (low & 1);
    SignedHalves sum = *reinterpret_cast<const StoredHalves*>(values + i);
    sum += (SignedHalves)((magnitude ^ negative) - negative);
    sum = sum > limit ? limit : sum;
    sum = sum < -limit ? -limit : sum;
    *reinterpret_cast<StoredHalves*>(sums + i) = sum;
  }
  std::uint32_t any = 0;
  for (std::size_t lane = 0; lane < kHalves; ++lane) any |= equal[lane];
  return any != 0;
}

}  // namespace
}  // namespace shieldfl::noise
