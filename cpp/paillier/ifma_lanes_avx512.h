// Between 64-bit words of numbers and 52-bit limbs in lanes, and the last subtraction.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "common/verify.h"
#include "paillier/ifma_columns_avx512.h"

namespace shieldfl::paillier {
namespace {

// rows[i] word k becomes rows[k] word i.
inline void transpose(Lanes (&rows)[kLane]) {
  Lanes pairs[kLane];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kLane; i += 2) {
    pairs[i] = _mm512_maskz_unpacklo_epi64(kAllWords, rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_maskz_unpackhi_epi64(kAllWords, rows[i], rows[i + 1]);
  }
  Lanes fours[kLane];
#pragma GCC unroll 2
  for (std::size_t i = 0; i < kLane; i += 4) {
#pragma GCC unroll 2
    for (std::size_t k = 0; k < 2; ++k) {
      fours[i + k] = _mm512_maskz_shuffle_i64x2(kAllWords, pairs[i + k], pairs[i + k + 2], 0x88);
      fours[i + k + 2] = _mm512_maskz_shuffle_i64x2(kAllWords, pairs[i + k], pairs[i + k + 2], 0xdd);
    }
  }
#pragma GCC unroll 4
  for (std::size_t k = 0; k < 4; ++k) {
    // Words k % 2 of the 128-bit lanes k / 2 and k / 2 + 2 of all eight rows.
    rows[k] = _mm512_maskz_shuffle_i64x2(kAllWords, fours[k], fours[k + 4], 0x88);
    rows[k + 4] = _mm512_maskz_shuffle_i64x2(kAllWords, fours[k], fours[k + 4], 0xdd);
  }
}

inline __mmask8 first_words(std::size_t count) {
  return static_cast<__mmask8>(count >= kLane ? 0xff : (1U << count) - 1);
}

void load_numbers(const std::uint64_t* numbers, std::size_t count, std::size_t stride, std::size_t words,
                  std::size_t limbs, std::uint64_t* lanes, std::uint64_t* scratch) {
  VERIFY(count <= kLane && is_aligned(lanes, 64) && is_aligned(scratch, 64));
  for (std::size_t w = 0; w < words; w += kLane) {
    Lanes rows[kLane];
    const __mmask8 present = first_words(words - w);
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kLane; ++k) {
      rows[k] =
          k < count ? _mm512_maskz_loadu_epi64(present, numbers + k * stride + w) : _mm512_setzero_si512();
    }
    transpose(rows);
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kLane; ++k) store(scratch + kLane * (w + k), rows[k]);
  }
  // A limb may end in the word after the last one.
  const Lanes mask = limb_mask();
  const std::size_t last = (words + kLane - 1) / kLane * kLane;
  store(scratch + kLane * last, _mm512_setzero_si512());
  for (std::size_t i = 0; i < limbs; ++i) {
    const std::size_t word = 52 * i / 64;
    const std::size_t shift = 52 * i % 64;
    if (word >= words) {
      store(lanes + kLane * i, _mm512_setzero_si512());
      continue;
    }
    // Shifts by 64 give zero.
    const Lanes low = _mm512_maskz_srlv_epi64(kAllWords, load(scratch + kLane * word), broadcast(shift));
    const Lanes high =
        _mm512_maskz_sllv_epi64(kAllWords, load(scratch + kLane * (word + 1)), broadcast(64 - shift));
    store(lanes + kLane * i, _mm512_and_si512(_mm512_or_si512(low, high), mask));
  }
}

void store_numbers(const std::uint64_t* lanes, std::size_t limbs, std::size_t count, std::size_t stride,
                   std::size_t words, std::uint64_t* numbers) {
  VERIFY(count <= kLane && words <= stride && is_aligned(lanes, 64));
  VERIFY(all_below(lanes, limbs * kLane, std::uint64_t{1} << 52));
  for (std::size_t w = 0; w < words; w += kLane) {
    Lanes rows[kLane];
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kLane; ++k) {
      const std::size_t limb = 64 * (w + k) / 52;
      const std::size_t shift = 64 * (w + k) % 52;
      // Up to three limbs meet in a word; shifts by 64 and more give zero.
      rows[k] = _mm512_setzero_si512();
      if (limb < limbs)
        rows[k] = _mm512_maskz_srlv_epi64(kAllWords, load(lanes + kLane * limb), broadcast(shift));
      for (std::size_t i = 1; i < 3 && limb + i < limbs; ++i) {
        const Lanes bits =
            _mm512_maskz_sllv_epi64(kAllWords, load(lanes + kLane * (limb + i)), broadcast(52 * i - shift));
        rows[k] = _mm512_or_si512(rows[k], bits);
      }
    }
    transpose(rows);
    const __mmask8 present = first_words(words - w);
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kLane; ++k) {
      if (k < count) _mm512_mask_storeu_epi64(numbers + k * stride + w, present, rows[k]);
    }
  }
}

// x -= n in the lanes where x is not below n: a mask of these.
inline __mmask8 subtract_once(const std::uint64_t* n, std::size_t limbs, std::uint64_t* x) {
  VERIFY(all_below(x, limbs * kLane, (std::uint64_t{1} << 53) + 1));
  const Lanes mask = limb_mask();
  Lanes carry = _mm512_setzero_si512();
  for (std::size_t i = 0; i < limbs; ++i) {
    const Lanes difference = _mm512_sub_epi64(load(x + kLane * i), broadcast(n[i]));
    carry = _mm512_maskz_srai_epi64(kAllWords, _mm512_add_epi64(difference, carry), 52);
  }
  const __mmask8 not_below = _mm512_cmpeq_epi64_mask(carry, _mm512_setzero_si512());
  carry = _mm512_setzero_si512();
  for (std::size_t i = 0; i < limbs; ++i) {
    const Lanes limb = load(x + kLane * i);
    const Lanes difference = _mm512_mask_sub_epi64(limb, not_below, limb, broadcast(n[i]));
    const Lanes sum = _mm512_add_epi64(difference, carry);
    store(x + kLane * i, _mm512_and_si512(sum, mask));
    carry = _mm512_maskz_srai_epi64(kAllWords, sum, 52);
  }
  return not_below;
}

}  // namespace
}  // namespace shieldfl::paillier
