// Products and Montgomery reductions as sums of columns: a column is the sum of all 52-bit halves of products
// of limbs that have its weight, and nothing is carried between columns before the end. A product adds at
// most 2 * limbs halves to a column, and no column is given more than three times that: less than 2^64 up to
// 680 limbs.
//
// Ten limbs of one factor stay in registers and slide along the other: twenty multiplications for each limb
// loaded and each column loaded and stored.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace shieldfl::paillier {
namespace {

using Lanes = __m512i;

constexpr std::size_t kLane = 8;   // words of a vector
constexpr std::size_t kTile = 10;  // limbs in registers

// Masks of whole vectors: the forms without a mask begin with an undefined vector, which the compiler warns
// of.
constexpr __mmask8 kAllWords = 0xff;
constexpr __mmask16 kAllHalves = 0xffff;
constexpr __mmask64 kAllBytes = ~__mmask64{0};

// What a tile's loops are unrolled by, so that its arrays are registers.
#define SHIELDFL_UNROLL _Pragma("GCC unroll 10")

inline Lanes load(const std::uint64_t* from) {
  return _mm512_load_si512(from);
}
inline void store(std::uint64_t* to, Lanes lanes) {
  _mm512_store_si512(to, lanes);
}
inline Lanes broadcast(std::uint64_t value) {
  return _mm512_set1_epi64(static_cast<long long>(value));
}
inline Lanes limb_mask() {
  return broadcast((std::uint64_t{1} << 52) - 1);
}
// The low 52 bits of a and b count, whatever is above them.
inline Lanes add_low(Lanes sum, Lanes a, Lanes b) {
  return _mm512_madd52lo_epu64(sum, a, b);
}
inline Lanes add_high(Lanes sum, Lanes a, Lanes b) {
  return _mm512_madd52hi_epu64(sum, a, b);
}

// A factor that differs from lane to lane, and one that is the same in all.
struct LaneFactor {
  const std::uint64_t* limbs;
  Lanes operator[](std::size_t i) const { return load(limbs + kLane * i); }
};
struct SharedFactor {
  const std::uint64_t* limbs;
  Lanes operator[](std::size_t i) const { return broadcast(limbs[i]); }
};

// columns += tile * factor[first..last). sums are the first kTile columns, and all before the last kTile,
// which are left in sums, are stored.
template <typename Factor>
inline void slide(const Lanes (&tile)[kTile], Factor factor, std::size_t first, std::size_t last,
                  std::uint64_t* columns, Lanes (&sums)[kTile]) {
  for (std::size_t j = first; j < last; ++j, columns += kLane) {
    const Lanes limb = factor[j];
    const Lanes entering = load(columns + kLane * kTile);
    SHIELDFL_UNROLL
    for (std::size_t k = 0; k < kTile; ++k) sums[k] = add_low(sums[k], tile[k], limb);
    store(columns, sums[0]);
    SHIELDFL_UNROLL
    for (std::size_t k = 0; k + 1 < kTile; ++k) sums[k] = add_high(sums[k + 1], tile[k], limb);
    sums[kTile - 1] = add_high(entering, tile[kTile - 1], limb);
  }
}

inline void load_tile(const std::uint64_t* from, Lanes (&tile)[kTile]) {
  SHIELDFL_UNROLL
  for (std::size_t k = 0; k < kTile; ++k) tile[k] = load(from + kLane * k);
}

inline void store_tile(std::uint64_t* to, const Lanes (&tile)[kTile]) {
  SHIELDFL_UNROLL
  for (std::size_t k = 0; k < kTile; ++k) store(to + kLane * k, tile[k]);
}

// columns += x[row, row + kTile) * factor, at the weight of row 0.
template <typename Factor>
inline void add_row(const std::uint64_t* x, std::size_t row, Factor factor, std::size_t limbs,
                    std::uint64_t* columns) {
  Lanes tile[kTile];
  Lanes sums[kTile];
  std::uint64_t* const first = columns + kLane * row;
  load_tile(x + kLane * row, tile);
  load_tile(first, sums);
  slide(tile, factor, 0, limbs, first, sums);
  store_tile(first + kLane * limbs, sums);
}

template <typename Factor>
inline void add_product(const std::uint64_t* x, Factor factor, std::size_t limbs, std::uint64_t* columns) {
  for (std::size_t row = 0; row < limbs; row += kTile) add_row(x, row, factor, limbs, columns);
}

inline void clear(std::uint64_t* columns, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) store(columns + kLane * i, _mm512_setzero_si512());
}

// columns = x * x.
inline void square_columns(const std::uint64_t* x, std::size_t limbs, std::uint64_t* columns) {
  clear(columns, 2 * limbs);
  for (std::size_t row = 0; row < limbs; row += kTile) {
    // Products of two different limbs, once.
    Lanes tile[kTile];
    Lanes sums[2 * kTile];
    std::uint64_t* const first = columns + 2 * kLane * row;
    load_tile(x + kLane * row, tile);
#pragma GCC unroll 20
    for (std::size_t k = 0; k < 2 * kTile; ++k) sums[k] = load(first + kLane * k);
    SHIELDFL_UNROLL
    for (std::size_t i = 0; i < kTile; ++i) {
      SHIELDFL_UNROLL
      for (std::size_t k = 0; k < i; ++k) sums[i + k] = add_low(sums[i + k], tile[i], tile[k]);
      SHIELDFL_UNROLL
      for (std::size_t k = 0; k < i; ++k) sums[i + k + 1] = add_high(sums[i + k + 1], tile[i], tile[k]);
    }
    Lanes upper[kTile];
    SHIELDFL_UNROLL
    for (std::size_t k = 0; k < kTile; ++k) {
      store(first + kLane * k, sums[k]);
      upper[k] = sums[kTile + k];
    }
    std::uint64_t* const next = first + kLane * kTile;
    slide(tile, LaneFactor{x}, row + kTile, limbs, next, upper);
    store_tile(next + kLane * (limbs - row - kTile), upper);
  }
  for (std::size_t i = 0; i < limbs; ++i) {
    std::uint64_t* const column = columns + 2 * kLane * i;
    const Lanes limb = load(x + kLane * i);
    const Lanes low = load(column);
    const Lanes high = load(column + kLane);
    store(column, add_low(_mm512_add_epi64(low, low), limb, limb));
    store(column + kLane, add_high(_mm512_add_epi64(high, high), limb, limb));
  }
}

// The next kTile digits of the quotient: columns + digits * n has zeros in its lowest kTile limbs. Adds that
// up to column kTile - 1, and what is carried out of it to column kTile; no column below kTile counts after
// that.
inline void quotient_digits(const std::uint64_t* n, std::uint64_t quotient_factor, std::uint64_t* columns,
                            std::uint64_t* digits) {
  const Lanes factor = broadcast(quotient_factor);
  const Lanes mask = limb_mask();
  const Lanes zero = _mm512_setzero_si512();
  Lanes sums[kTile];
  load_tile(columns, sums);
  Lanes carry = zero;
  SHIELDFL_UNROLL
  for (std::size_t k = 0; k < kTile; ++k) {
    const Lanes digit = add_low(zero, sums[k], factor);
    store(digits + kLane * k, digit);
    // The low limb of digit * n is what lacks to the next multiple of 2^52.
    carry = _mm512_maskz_srli_epi64(kAllWords, _mm512_add_epi64(sums[k], mask), 52);
    if (k + 1 < kTile) {
      const Lanes high = add_high(carry, digit, broadcast(n[0]));
      sums[k + 1] = _mm512_add_epi64(add_low(sums[k + 1], digit, broadcast(n[1])), high);
    }
    SHIELDFL_UNROLL
    for (std::size_t i = k + 2; i < kTile; ++i) {
      sums[i] = add_low(sums[i], digit, broadcast(n[i - k]));
      sums[i] = add_high(sums[i], digit, broadcast(n[i - k - 1]));
    }
  }
  store(columns + kLane * kTile, _mm512_add_epi64(load(columns + kLane * kTile), carry));
}

// columns += digits * n, from column kTile up.
inline void add_quotient(const std::uint64_t* digits, const std::uint64_t* n, std::size_t limbs,
                         std::uint64_t* columns) {
  std::uint64_t* const above = columns + kLane * kTile;
  Lanes tile[kTile];
  Lanes sums[kTile];
  load_tile(digits, tile);
  load_tile(above, sums);
  SHIELDFL_UNROLL
  for (std::size_t j = 0; j < kTile; ++j) {
    const Lanes limb = broadcast(n[j]);
    SHIELDFL_UNROLL
    for (std::size_t k = kTile - j; k < kTile; ++k) {
      sums[k + j - kTile] = add_low(sums[k + j - kTile], tile[k], limb);
    }
    SHIELDFL_UNROLL
    for (std::size_t k = kTile - 1 - j; k < kTile; ++k) {
      sums[k + j + 1 - kTile] = add_high(sums[k + j + 1 - kTile], tile[k], limb);
    }
  }
  slide(tile, SharedFactor{n}, kTile, limbs, above, sums);
  store_tile(columns + kLane * limbs, sums);
}

// out = the limbs of what `count` columns sum up to; out may be the columns.
inline void carry_columns(const std::uint64_t* columns, std::size_t count, std::uint64_t* out) {
  const Lanes mask = limb_mask();
  Lanes carry = _mm512_setzero_si512();
  for (std::size_t i = 0; i < count; ++i) {
    const Lanes sum = _mm512_add_epi64(load(columns + kLane * i), carry);
    store(out + kLane * i, _mm512_and_si512(sum, mask));
    carry = _mm512_maskz_srli_epi64(kAllWords, sum, 52);
  }
}

}  // namespace
}  // namespace shieldfl::paillier
