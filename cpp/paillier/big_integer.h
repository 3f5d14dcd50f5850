// Whole numbers of any length, on GMP's mpz: for public numbers and for making and checking keys. Its time
// depends on the numbers, so what runs on many inputs under one secret key is an Engine's work instead.
//
// Limbs are wiped on destruction. Every result gets its room before GMP computes it, since GMP gives memory
// that it outgrows back without wiping it; GMP's own scratch, on the stack or the heap, is still left as it
// was.
#pragma once

#include <gmp.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/secure_memory.h"

namespace shieldfl::paillier {

class BigInteger {
 public:
  explicit BigInteger(std::uint64_t value = 0);
  static BigInteger from_words(std::span<const std::uint64_t> little_endian);
  BigInteger(const BigInteger& other);
  BigInteger(BigInteger&& other) noexcept;
  BigInteger& operator=(BigInteger other) noexcept;
  ~BigInteger();

  // Little-endian, with zeros behind. Throws Error(kInternal) for a number that is longer.
  [[nodiscard]] SecretVector<std::uint64_t> to_words(std::size_t words) const;

  [[nodiscard]] std::size_t bit_length() const;  // of 0: 0
  [[nodiscard]] bool is_perfect_square() const;
  // Wrong for a composite with probability 4^-rounds at most; never for a prime.
  [[nodiscard]] bool is_probable_prime(int rounds) const;
  // Of a divisor that is not 0.
  [[nodiscard]] std::uint64_t modulo_word(std::uint64_t divisor) const;

  friend bool operator==(const BigInteger& left, const BigInteger& right);
  friend std::strong_ordering operator<=>(const BigInteger& left, const BigInteger& right);
  friend BigInteger operator+(const BigInteger& left, const BigInteger& right);
  // Throws Error(kInternal) if right is larger.
  friend BigInteger operator-(const BigInteger& left, const BigInteger& right);
  friend BigInteger operator*(const BigInteger& left, const BigInteger& right);
  // Rounded down; divisors are not 0.
  friend BigInteger operator/(const BigInteger& left, const BigInteger& right);
  friend BigInteger operator%(const BigInteger& left, const BigInteger& right);
  friend BigInteger greatest_common_divisor(const BigInteger& left, const BigInteger& right);
  friend BigInteger power_modulo(const BigInteger& base, const BigInteger& exponent,
                                 const BigInteger& modulus);
  // Jacobi's symbol (number / modulus): -1, 0 or 1. The modulus is odd.
  friend int jacobi_symbol(const BigInteger& number, const BigInteger& modulus);

 private:
  static BigInteger with_room_for(std::size_t bits);

  mpz_t value_;
};

BigInteger greatest_common_divisor(const BigInteger& left, const BigInteger& right);
BigInteger power_modulo(const BigInteger& base, const BigInteger& exponent, const BigInteger& modulus);
int jacobi_symbol(const BigInteger& number, const BigInteger& modulus);

}  // namespace shieldfl::paillier
