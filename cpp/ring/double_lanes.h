// Arithmetic modulo a prime q < 2^50 on four lanes, in double precision, for kernels of processors that have
// no products of longer integers in vectors. lanes_avx2.h and lanes_neon.h have what the processor does.
//
// A lane holds an integer below 2^53 in magnitude, of either sign, that is congruent to the residue it stands
// for; each function states how large it may be. Sums, differences and fused products of such integers are
// exact while they stay below 2^53 > 8q. Quotients alone are rounded, and one that is off by a little costs
// no exactness: the representative that remains is a little larger.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __AVX2__
#include "ring/lanes_avx2.h"
#else
#include "ring/lanes_neon.h"
#endif

namespace shieldfl::ring {
namespace {

// x + kRounder is x rounded to an integer, which is in its low bits, for |x| <= 2^51.
constexpr double kRounder = 0x1.8p52;
// x + kEvenRounder is x rounded to an even integer, for |x| <= 2^52.
constexpr double kEvenRounder = 0x1.8p53;
// kUnsignedRounder + x has x in its low bits, for integers 0 <= x < 2^52.
constexpr double kUnsignedRounder = 0x1p52;

struct Prime {
  Lanes q;
  Lanes reciprocal;  // 1/q, rounded
};

// A factor w, |w| < q/2, and w/q rounded, which is wrong by at most 2^-55 since it is below 1/2.
struct FactorLanes {
  Lanes value;
  Lanes quotient;
};

inline double as_double(std::uint64_t integer) {
  return static_cast<double>(static_cast<std::int64_t>(integer));
}

inline Prime make_prime(std::uint64_t q) {
  return {broadcast(as_double(q)), broadcast(1.0 / as_double(q))};
}

// A factor in [0, q) as the representative of smallest magnitude, without a branch, and its quotient.
inline double balanced_factor(std::uint64_t factor, std::uint64_t q) {
  const std::uint64_t above = 0 - ((q / 2 - factor) >> 63);
  return as_double(factor - (q & above));
}

inline double factor_quotient(double balanced, std::uint64_t q) {
  return balanced / as_double(q);
}

// Integers in [0, 2^52) to lanes, and back.
inline Lanes from_unsigned(Lanes integers) {
  const Lanes rounder = broadcast(kUnsignedRounder);
  return or_bits(integers, rounder) - rounder;
}

inline Lanes to_unsigned(Lanes x) {
  const Lanes rounder = broadcast(kUnsignedRounder);
  return xor_bits(x + rounder, rounder);
}

// Integers of magnitude below 2^51 to lanes.
inline Lanes from_signed(Integers integers) {
  const Lanes rounder = broadcast(kRounder);
  return as_lanes(integers + as_integers(rounder)) - rounder;
}

// x w - quotient * q for |x| < 2^53. The rounding error of x w is at most 2^48, since |x w| < 2^102, and
// `low` is that error; `high` is an integer. So all is exact where the result is below 2^53 - 2^48 in
// magnitude.
inline Lanes subtract_multiple(Lanes x, const FactorLanes& w, Lanes quotient, const Prime& prime) {
  const Lanes high = x * w.value;
  const Lanes low = fused_difference(x, w.value, high);
  return fused_rest(high, quotient, prime.q) + low;
}

// x w mod q, at most q/2 + |x|/32 in magnitude, for |x| <= 4q: |x w / q| < 2^51, so the quotient is the
// integer next to x * w.quotient, which differs from x w / q by at most |x| 2^-55; and q 2^-55 < 1/32.
inline Lanes multiply(Lanes x, const FactorLanes& w, const Prime& prime) {
  const Lanes rounder = broadcast(kRounder);
  const Lanes quotient = fused_sum(x, w.quotient, rounder) - rounder;
  return subtract_multiple(x, w, quotient, prime);
}

// The same for |x| <= 8q, but at most q + |x|/32 in magnitude, since the quotient is an even integer.
inline Lanes multiply_wide(Lanes x, const FactorLanes& w, const Prime& prime) {
  const Lanes rounder = broadcast(kEvenRounder);
  const Lanes quotient = fused_sum(x, w.quotient, rounder) - rounder;
  return subtract_multiple(x, w, quotient, prime);
}

// x w + y mod q, below q in magnitude, for |x| < 2^50 and 0 <= y <= 2q. The quotient is within 1/2 + 1/8 of
// (x w + y) / q: the error of w.quotient gives less than 1/32, the rounding of a sum below 2^50 less than
// 1/16, and that of y/q next to nothing. The difference before y is added stays below 3q.
inline Lanes multiply_add(Lanes x, const FactorLanes& w, Lanes y, const Prime& prime) {
  const Lanes rounder = broadcast(kRounder);
  const Lanes estimate = fused_sum(x, w.quotient, y * prime.reciprocal);
  const Lanes quotient = (estimate + rounder) - rounder;
  return subtract_multiple(x, w, quotient, prime) + y;
}

// x mod q for |x| <= 8q, at most q/2 + 1 in magnitude; below q/2 for |x| < q, since x/q is then at least
// 1/(2q) > 2^-51 from where the rounding turns, and wrong by at most 2^-53.
inline Lanes reduce(Lanes x, const Prime& prime) {
  const Lanes rounder = broadcast(kRounder);
  const Lanes quotient = fused_sum(x, prime.reciprocal, rounder) - rounder;
  return fused_rest(x, quotient, prime.q);
}

// The residue in [0, q) as an integer, for |x| < q.
inline Lanes to_residues(Lanes x, const Prime& prime) {
  return to_unsigned(x + keep_where_negative(prime.q, x));
}

// Four vectors whose elements are `stride` apart.
struct Quad {
  Lanes at0, at1, at2, at3;
};

inline Quad load_quad(const std::uint64_t* from, std::size_t stride) {
  return {load(from), load(from + stride), load(from + 2 * stride), load(from + 3 * stride)};
}

inline Quad from_unsigned(const Quad& v) {
  return {from_unsigned(v.at0), from_unsigned(v.at1), from_unsigned(v.at2), from_unsigned(v.at3)};
}

inline void store_quad(std::uint64_t* to, std::size_t stride, const Quad& v) {
  store(to, v.at0);
  store(to + stride, v.at1);
  store(to + 2 * stride, v.at2);
  store(to + 3 * stride, v.at3);
}

inline Quad to_residues(const Quad& v, const Prime& prime) {
  return {to_residues(v.at0, prime), to_residues(v.at1, prime), to_residues(v.at2, prime),
          to_residues(v.at3, prime)};
}

inline Quad reduce(const Quad& v, const Prime& prime) {
  return {reduce(v.at0, prime), reduce(v.at1, prime), reduce(v.at2, prime), reduce(v.at3, prime)};
}

}  // namespace
}  // namespace shieldfl::ring
