// Residues in 52-bit lanes, eight to a vector, for the *_avx512.cpp files of the ring alone. A prepared
// factor is (w, floor(w * 2^52 / q)) with w < q < 2^50.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace shieldfl::ring {
namespace {

using Lanes = __m512i;

constexpr std::size_t kLanes = 8;

inline Lanes broadcast(std::uint64_t value) {
  return _mm512_set1_epi64(static_cast<long long>(value));
}

inline Lanes load(const std::uint64_t* from) {
  return _mm512_loadu_si512(from);
}

inline void store(std::uint64_t* to, Lanes lanes) {
  _mm512_storeu_si512(to, lanes);
}

inline Lanes add(Lanes a, Lanes b) {
  return _mm512_add_epi64(a, b);
}

inline Lanes subtract(Lanes a, Lanes b) {
  return _mm512_sub_epi64(a, b);
}

// The product of the low 52 bits of a and b is 104 bits long: sum + its low or high half.
inline Lanes add_low(Lanes sum, Lanes a, Lanes b) {
  return _mm512_madd52lo_epu64(sum, a, b);
}

inline Lanes high(Lanes a, Lanes b) {
  return _mm512_madd52hi_epu64(_mm512_setzero_si512(), a, b);
}

// Some compilers take the unmasked intrinsics for uses of an unset variable; with all lanes it is the same
// instruction.
constexpr __mmask8 kAllLanes = 0xFF;

inline Lanes minimum(Lanes a, Lanes b) {
  return _mm512_maskz_min_epu64(kAllLanes, a, b);
}

inline Lanes maximum(Lanes a, Lanes b) {
  return _mm512_maskz_max_epu64(kAllLanes, a, b);
}

// a in [0, 2 * bound) to [0, bound): below the bound the difference wraps to more than a.
inline Lanes subtract_if_above(Lanes a, Lanes bound) {
  return minimum(a, subtract(a, bound));
}

// a in [-bound, bound) to [-bound, 0).
inline Lanes subtract_if_not_negative(Lanes a, Lanes bound) {
  return maximum(a, subtract(a, bound));
}

// a in [-bound, bound) to [0, bound).
inline Lanes add_if_negative(Lanes a, Lanes bound) {
  return minimum(a, add(a, bound));
}

// 2^52 / q, which Residues::prepare takes.
inline __m512d quotient_scale(std::uint64_t q) {
  return _mm512_set1_pd(0x1p52 / static_cast<double>(q));
}

struct Factors {
  Lanes value;
  Lanes quotient;
};

struct Residues {
  Lanes q;
  Lanes two_q;
  Lanes negated_q;  // modulo 2^52
  Lanes low_bits;   // of a lane, 52 of them

  explicit Residues(std::uint64_t modulus)
      : q(broadcast(modulus)),
        two_q(broadcast(2 * modulus)),
        negated_q(broadcast((std::uint64_t{1} << 52) - modulus)),
        low_bits(broadcast((std::uint64_t{1} << 52) - 1)) {}

  // sum + a * w mod 2^52, with a * w reduced to [0, 2q); a is any 52 bits.
  [[nodiscard]] Lanes add_product(Lanes sum, Lanes a, Factors w) const {
    const Lanes multiple = high(a, w.quotient);
    return _mm512_and_si512(add_low(add_low(sum, a, w.value), multiple, negated_q), low_bits);
  }

  // a * w mod q, in [0, 2q), for a below 2^52.
  [[nodiscard]] Lanes multiply_lazy(Lanes a, Factors w) const {
    return add_product(_mm512_setzero_si512(), a, w);
  }

  // The same minus 2q, in [-2q, 0).
  [[nodiscard]] Lanes multiply_lazy_below(Lanes a, Factors w) const {
    const Lanes multiple = high(a, w.quotient);
    const Lanes product =
        add_low(add_low(subtract(_mm512_setzero_si512(), two_q), a, w.value), multiple, negated_q);
    return _mm512_ternarylogic_epi64(product, product, low_bits, 0xF5);  // product | ~low_bits
  }

  // a * w mod q, in [0, q), for a below 2^52.
  [[nodiscard]] Lanes multiply(Lanes a, Factors w) const { return subtract_if_above(multiply_lazy(a, w), q); }

  // Prepared factors from residues in [0, q), given 2^52 / q as a double.
  [[nodiscard]] Factors prepare(Lanes w, __m512d scale) const {
    // Two roundings of one part in 2^53 and that to an integer: less than 1.6 from w * 2^52 / q.
    const Lanes guess = _mm512_maskz_cvt_roundpd_epi64(
        kAllLanes, _mm512_mul_pd(_mm512_maskz_cvtepi64_pd(kAllLanes, w), scale),
        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // (w * 2^52 - guess * q) + 2q, in (0, 4q): how many q it holds tells by how much the guess is off.
    const Lanes excess = _mm512_and_si512(add_low(two_q, guess, negated_q), low_bits);
    Lanes quotient = subtract(guess, broadcast(2));
    Lanes multiple = q;
    for (int i = 0; i < 3; ++i, multiple = add(multiple, q)) {
      quotient =
          _mm512_mask_add_epi64(quotient, _mm512_cmpge_epu64_mask(excess, multiple), quotient, broadcast(1));
    }
    return {w, quotient};
  }
};

}  // namespace
}  // namespace shieldfl::ring
