// The kernels of a share of distributed noise over the vectors of noise_vectors.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "noise/noise_vectors.h"
#include "noise/share_kernels.h"

namespace shieldfl::noise {
namespace {

using SignedWords = std::int64_t __attribute__((vector_size(kLanes * sizeof(std::int64_t))));
using Integers = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
using StoredIntegers = std::int32_t
    __attribute__((vector_size(kLanes * sizeof(std::int32_t)), aligned(alignof(std::int32_t)), may_alias));

// To one of the two integers next to it: see share_kernels.h. `bits` are below 2^32.
SHIELDFL_NOISE_INLINE Doubles rounded_by(Doubles x, Words bits) {
  constexpr double kToInteger = 0x1.8p52;
  constexpr std::uint64_t kTwoTo20 = 0x4130000000000000;
  const Doubles nearest = (x + kToInteger) - kToInteger;
  const Doubles floor = nearest - (Doubles)((Words)(nearest > x) & (Words)(Doubles{} + 1.0));
  // 2^20 + r 2^-32 has r as its low bits; the difference is (r + 1/2) 2^-32.
  const Doubles limit = (Doubles)(bits | kTwoTo20) - (0x1p20 - 0x1p-33);
  return floor + (Doubles)((Words)(limit < x - floor) & (Words)(Doubles{} + 1.0));
}

// A vector of values: what `round` does with them, but for the sum of the squares that it adds to.
SHIELDFL_NOISE_INLINE void round_vector(const float* values, std::int32_t* rounded, Words bits, double steps,
                                        Doubles limit, Words& squares) {
  Doubles result = rounded_by(load_doubles(values) * steps, bits);
  // |result| becomes the low bits of 2^52 + |result|.
  const Doubles magnitude = (Doubles)((Words)result & ~(std::uint64_t{1} << 63)) + 0x1p52;
  const Words integer = (Words)magnitude & 0xffffffff;
  squares += integer * integer;
  result = result > limit ? limit : result;
  result = result < -limit ? -limit : result;
  *reinterpret_cast<StoredIntegers*>(rounded) = __builtin_convertvector(result, Integers);
}

std::uint64_t round(const float* values, std::int32_t* rounded, const std::uint64_t* words,
                    std::size_t groups, double steps, std::int32_t most) {
  constexpr std::size_t kHalf = kShareGroup / 2;
  static_assert(kHalf == kRoundingWordsPerGroup && kHalf % kLanes == 0);
  const Doubles limit = Doubles{} + static_cast<double>(most);
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

SHIELDFL_NOISE_INLINE Words look_up(const std::uint64_t* table, Words at) {
#if SHIELDFL_NOISE_LANES == 8
  return (Words)_mm512_mask_i64gather_epi64(_mm512_setzero_si512(), 0xff, (__m512i)at, table, 8);
#elif SHIELDFL_NOISE_LANES == 4
  return (Words)_mm256_i64gather_epi64(reinterpret_cast<const long long*>(table), (__m256i)at, 8);
#else
  Words found;
  for (std::size_t lane = 0; lane < kLanes; ++lane) found[lane] = table[at[lane]];
  return found;
#endif
}

bool add_draws_vartime(const std::int32_t* values, std::int32_t* sums, const std::uint64_t* words,
                       std::size_t groups, const std::uint64_t* buckets, std::uint64_t bucket_mask,
                       std::int32_t most) {
  const SignedWords limit = SignedWords{} + most;
  SignedWords equal = {};
  for (std::size_t i = 0; i < groups * kShareGroup; i += kLanes) {
    const Words random = load_words(words + i);
    const Words bucket = (random >> 1) & bucket_mask;
    const Words entry = look_up(buckets, bucket);
    const Words chance = random >> 32;
    const Words threshold = entry >> 32;
    equal |= chance == threshold;
    const Words magnitude = chance < threshold ? bucket : entry & 0xffffffff;
    const Words negative = Words{} - (random & 1);
    const Integers before = *reinterpret_cast<const StoredIntegers*>(values + i);
    SignedWords sum =
        __builtin_convertvector(before, SignedWords) + (SignedWords)((magnitude ^ negative) - negative);
    sum = sum > limit ? limit : sum;
    sum = sum < -limit ? -limit : sum;
    *reinterpret_cast<StoredIntegers*>(sums + i) = __builtin_convertvector(sum, Integers);
  }
  std::int64_t any = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) any |= equal[lane];
  return any != 0;
}

}  // namespace
}  // namespace shieldfl::noise
