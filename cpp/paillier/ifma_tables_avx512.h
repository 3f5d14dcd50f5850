// Tables of powers: their bytes are looked up by permutations of registers, so that no address depends on a
// digit. One permutation serves 64 numbers: it takes a byte of each one's entry out of 64 entries.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "paillier/ifma_columns_avx512.h"

namespace shieldfl::paillier {
namespace {

constexpr std::size_t kLimbPlanes = 7;  // bytes of a limb

void pack_entries(const std::uint64_t* groups, std::size_t limbs, std::size_t number, std::size_t slice,
                  std::size_t slices, std::uint8_t* row) {
  const std::size_t group_words = 2 * limbs * kLane;
  for (std::size_t i = 0; i < 2 * limbs; ++i) {
    for (std::size_t e = 0; e < 64; e += kLane) {
      // One after the other: no address of these functions is in a vector, where the check of addresses is
      // blind.
      alignas(64) std::uint64_t entries[kLane];
      for (std::size_t lane = 0; lane < kLane; ++lane)
        entries[lane] = groups[(e + lane) * group_words + i * kLane + number];
      Lanes limb = _mm512_load_si512(entries);
      for (std::size_t plane = 0; plane < kLimbPlanes; ++plane) {
        std::uint8_t* const bytes = row + ((i * kLimbPlanes + plane) * slices + slice) * 64 + e;
        _mm_storel_epi64(reinterpret_cast<__m128i*>(bytes), _mm512_maskz_cvtepi64_epi8(kAllWords, limb));
        limb = _mm512_maskz_srli_epi64(kAllWords, limb, 8);
      }
    }
  }
}

// planes[b] is byte b of 64 words, rows[g] eight of the words, in the order that look_up names.
inline void join_bytes(const Lanes (&planes)[kLane], Lanes (&rows)[kLane]) {
  Lanes twos[kLane];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    twos[i] = _mm512_unpacklo_epi8(planes[2 * i], planes[2 * i + 1]);
    twos[i + 4] = _mm512_unpackhi_epi8(planes[2 * i], planes[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (std::size_t half = 0; half < 2; ++half) {
    const Lanes* const two = twos + 4 * half;
    const Lanes low[2] = {_mm512_unpacklo_epi16(two[0], two[1]), _mm512_unpacklo_epi16(two[2], two[3])};
    const Lanes high[2] = {_mm512_unpackhi_epi16(two[0], two[1]), _mm512_unpackhi_epi16(two[2], two[3])};
    rows[4 * half] = _mm512_maskz_unpacklo_epi32(kAllHalves, low[0], low[1]);
    rows[4 * half + 1] = _mm512_maskz_unpackhi_epi32(kAllHalves, low[0], low[1]);
    rows[4 * half + 2] = _mm512_maskz_unpacklo_epi32(kAllHalves, high[0], high[1]);
    rows[4 * half + 3] = _mm512_maskz_unpackhi_epi32(kAllHalves, high[0], high[1]);
  }
}

template <std::size_t kSlices>
void look_up_slices(const std::uint8_t* row, std::size_t limbs, const std::uint8_t* low_digits,
                    const std::uint8_t* high_digits, std::uint64_t* groups) {
  const Lanes digits = _mm512_loadu_si512(low_digits);
  const Lanes slices = _mm512_loadu_si512(high_digits);
  __mmask64 chosen[kSlices];
#pragma GCC unroll 4
  for (std::size_t s = 0; s < kSlices; ++s) {
    chosen[s] = _mm512_cmpeq_epi8_mask(slices, _mm512_set1_epi8(static_cast<char>(s)));
  }
  for (std::size_t i = 0; i < 2 * limbs; ++i) {
    Lanes planes[kLane];
    planes[kLane - 1] = _mm512_setzero_si512();
#pragma GCC unroll 7
    for (std::size_t plane = 0; plane < kLimbPlanes; ++plane) {
      Lanes bytes = _mm512_maskz_permutexvar_epi8(kAllBytes, digits, _mm512_loadu_si512(row));
#pragma GCC unroll 4
      for (std::size_t s = 1; s < kSlices; ++s) {
        bytes = _mm512_mask_permutexvar_epi8(bytes, chosen[s], digits, _mm512_loadu_si512(row + 64 * s));
      }
      planes[plane] = bytes;
      row += 64 * kSlices;
    }
    Lanes rows[kLane];
    join_bytes(planes, rows);
#pragma GCC unroll 8
    for (std::size_t g = 0; g < kLane; ++g) store(groups + (g * 2 * limbs + i) * kLane, rows[g]);
  }
}

void look_up_entries(const std::uint8_t* row, std::size_t limbs, std::size_t slices,
                     const std::uint8_t* low_digits, const std::uint8_t* high_digits, std::uint64_t* groups) {
  if (slices == 1) look_up_slices<1>(row, limbs, low_digits, high_digits, groups);
  if (slices == 2) look_up_slices<2>(row, limbs, low_digits, high_digits, groups);
  if (slices == 4) look_up_slices<4>(row, limbs, low_digits, high_digits, groups);
}

void select_entry(const std::uint64_t* table, std::size_t limbs, std::size_t entries, std::uint64_t digit,
                  std::uint64_t* out) {
  const Lanes wanted = broadcast(digit);
  constexpr std::size_t kAtOnce = 4;  // vectors; 2 * limbs is a multiple
  for (std::size_t i = 0; i < 2 * limbs; i += kAtOnce) {
    Lanes chosen[kAtOnce] = {};
    for (std::size_t e = 0; e < entries; ++e) {
      const __mmask8 here = _mm512_cmpeq_epi64_mask(wanted, broadcast(e));
#pragma GCC unroll 4
      for (std::size_t k = 0; k < kAtOnce; ++k) {
        const Lanes limb = load(table + (e * 2 * limbs + i + k) * kLane);
        chosen[k] = _mm512_mask_mov_epi64(chosen[k], here, limb);
      }
    }
    for (std::size_t k = 0; k < kAtOnce; ++k) store(out + (i + k) * kLane, chosen[k]);
  }
}

}  // namespace
}  // namespace shieldfl::paillier
