// Arithmetic modulo a prime below 2^61, without secret-dependent branches.
#pragma once

#include <cstdint>

#include "common/verify.h"

namespace shieldfl::ring {

__extension__ using UInt128 = unsigned __int128;
__extension__ using Int128 = __int128;

// A prime modulus q, 2 < q < 2^61.
struct Modulus {
  std::uint64_t value;
  unsigned bits;  // the length of q in bits, which is the width of a residue on the wire

  explicit Modulus(std::uint64_t prime);
};

// A fixed factor w < q with its quotient floor(w * 2^64 / q), after Shoup.
struct Factor {
  std::uint64_t value;
  std::uint64_t quotient;
};

inline Factor make_factor(std::uint64_t value, std::uint64_t q) {
  VERIFY(value < q);
  return {value, static_cast<std::uint64_t>((static_cast<UInt128>(value) << 64) / q)};
}

// a * w mod q, in [0, 2q), for any 64-bit a.
inline std::uint64_t multiply_lazy(std::uint64_t a, Factor w, std::uint64_t q) {
  VERIFY(w.value < q);
  const auto high = static_cast<std::uint64_t>((static_cast<UInt128>(a) * w.quotient) >> 64);
  return a * w.value - high * q;
}

// a in [0, 2 * bound) to [0, bound), without a branch.
inline std::uint64_t subtract_if_above(std::uint64_t a, std::uint64_t bound) {
  VERIFY(a < 2 * bound);
  const std::uint64_t difference = a - bound;
  const std::uint64_t borrow = 0 - (difference >> 63);  // all ones when a < bound; both stay below 2^63
  return difference + (bound & borrow);
}

// a * w mod q, in [0, q).
inline std::uint64_t multiply(std::uint64_t a, Factor w, std::uint64_t q) {
  return subtract_if_above(multiply_lazy(a, w, q), q);
}

// a + b mod q, in [0, q), where the sum is below 2q.
inline std::uint64_t add(std::uint64_t a, std::uint64_t b, std::uint64_t q) {
  VERIFY(a < 2 * q && b < 2 * q);
  return subtract_if_above(a + b, q);
}

// A signed integer as a residue in [0, q), without a branch.
inline std::uint64_t residue(std::int64_t a, std::uint64_t q) {
  VERIFY(-static_cast<std::int64_t>(q) < a && a < static_cast<std::int64_t>(q));
  const auto sign = static_cast<std::uint64_t>(a >> 63);
  return static_cast<std::uint64_t>(a) + (q & sign);
}

// The representative of a residue in (-q/2, q/2], without a branch.
inline std::int64_t centered(std::uint64_t a, std::uint64_t q) {
  VERIFY(a < q);
  const std::uint64_t above = 0 - ((q / 2 - a) >> 63);
  return static_cast<std::int64_t>(a - (q & above));
}

// base^exponent mod q. For public values only: the running time tells the exponent.
std::uint64_t power_vartime(std::uint64_t base, std::uint64_t exponent, std::uint64_t q);

// The inverse of a (not 0) modulo the prime q. For public values only.
std::uint64_t inverse_vartime(std::uint64_t a, std::uint64_t q);

}  // namespace shieldfl::ring
