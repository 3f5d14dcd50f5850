// Integers as long as a coefficient of four primes takes. Without branches that depend on them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ring/modulus.h"

namespace shieldfl::rlwe {

using ring::UInt128;

// Signed numbers of 256 bits, as long as a coefficient of four primes takes; lowest word first.
using Wide = std::array<std::uint64_t, 4>;

// number * factor + addend.
inline Wide multiply_add(const Wide& number, std::uint64_t factor, std::uint64_t addend) {
  Wide result;
  UInt128 carry = addend;
  for (std::size_t i = 0; i < number.size(); ++i) {
    carry += static_cast<UInt128>(number[i]) * factor;
    result[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
  return result;
}

// a + b, or a - b where `negate` is all ones and not zero.
inline Wide add(const Wide& a, const Wide& b, std::uint64_t negate = 0) {
  Wide result;
  UInt128 carry = negate & 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    carry += static_cast<UInt128>(a[i]) + (b[i] ^ negate);
    result[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
  return result;
}

inline constexpr std::uint64_t kNegate = ~std::uint64_t{0};

// All ones where the number is below zero.
inline std::uint64_t sign(const Wide& number) {
  return 0 - (number[3] >> 63);
}

inline Wide power_of_two(unsigned exponent) {
  Wide result{};
  result[exponent / 64] = std::uint64_t{1} << exponent % 64;
  return result;
}

// number / 2^bits, rounded down; 0 < bits < 256.
inline Wide shift_down(const Wide& number, unsigned bits) {
  const std::uint64_t fill = sign(number);
  Wide result;
  for (std::size_t i = 0; i < number.size(); ++i) {
    const std::size_t from = i + bits / 64;
    const std::uint64_t low = from < number.size() ? number[from] : fill;
    const std::uint64_t high = from + 1 < number.size() ? number[from + 1] : fill;
    result[i] = bits % 64 == 0 ? low : (low >> bits % 64) | (high << (64 - bits % 64));
  }
  return result;
}

inline Wide product_of(std::span<const std::uint64_t> primes) {
  Wide product{1};
  for (const std::uint64_t prime : primes) product = multiply_add(product, prime, 0);
  return product;
}

}  // namespace shieldfl::rlwe
