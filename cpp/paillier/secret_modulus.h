// Arithmetic modulo a secret odd number n: products and two ways to reduce them.
//
// R is 2^(64 words()). Scratch is the caller's, scratch_words() words for any one call, and overlaps nothing
// else; a caller that takes it from a SecretVector has it wiped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/secure_memory.h"

namespace shieldfl::paillier {

class SecretModulus {
 public:
  // `modulus`: odd, two words or more, the top one not zero. Only its length is public.
  explicit SecretModulus(std::span<const std::uint64_t> modulus);

  [[nodiscard]] std::size_t words() const { return modulus_.size(); }
  [[nodiscard]] std::size_t scratch_words() const { return scratch_words_; }
  [[nodiscard]] const std::uint64_t* data() const { return modulus_.data(); }
  // R as quotient * n + remainder.
  [[nodiscard]] const std::uint64_t* r_quotient() const { return r_quotient_.data(); }
  [[nodiscard]] const std::uint64_t* r_remainder() const { return r_remainder_.data(); }

  // product (2 * words()) = left * right, neither of which it overlaps.
  void multiply(const std::uint64_t* left, const std::uint64_t* right, std::uint64_t* product,
                std::uint64_t* scratch) const;
  void square(const std::uint64_t* number, std::uint64_t* product, std::uint64_t* scratch) const;

  // value (2 * words(), and top, 0 or 1, above them) -= n * R if that is not more: for values below 2 * n *
  // R.
  void fold(std::uint64_t* value, std::uint64_t top) const;
  // number (words(), and top, 0 or 1, above them) -= n if that is not more; returns whether it was.
  std::uint64_t subtract_once(std::uint64_t* number, std::uint64_t top) const;
  // number = number + addend modulo n, both below n.
  void add(std::uint64_t* number, const std::uint64_t* addend) const;

  // value = quotient * n + remainder, for a value (2 * words()) below n * R. The quotient has words() words,
  // and may be null. Either may lie in value.
  void divide(const std::uint64_t* value, std::uint64_t* quotient, std::uint64_t* remainder,
              std::uint64_t* scratch) const;

  // value + multiple * n = (result + carry * n) * R, for a value (2 * words()) below n * R, which is
  // overwritten; result is below n. Returns carry, 0 or 1. `multiple` has words() words and may be null.
  // Neither overlaps value.
  std::uint64_t montgomery_reduce(std::uint64_t* value, std::uint64_t* multiple, std::uint64_t* result) const;

  // inverse = number^-1 modulo n; false, and inverse undefined, if there is none. Constant-time but for that.
  bool invert(const std::uint64_t* number, std::uint64_t* inverse) const;

 private:
  void find_reciprocal();

  SecretVector<std::uint64_t> modulus_;
  // n shifted until its top bit is set, and floor((R^2 - 1) / that) - R.
  SecretVector<std::uint64_t> shifted_;
  SecretVector<std::uint64_t> reciprocal_;
  SecretVector<std::uint64_t> r_quotient_;
  SecretVector<std::uint64_t> r_remainder_;
  std::uint64_t negative_inverse_;  // -n^-1 modulo 2^64
  unsigned shift_;
  std::size_t scratch_words_;
};

}  // namespace shieldfl::paillier
