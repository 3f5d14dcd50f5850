// Numbers modulo n^2 as pairs low + high * n, both below n, low words first: see engine.h.
//
// X * Y = x0*y0 + (x0*y1 + x1*y0) * n modulo n^2. The plain product divides x0*y0 by n and gives the quotient
// to the other half. Montgomery's writes x0*y0 = t*R - m*n, so that X*Y / R = t + n * ((x0*y1 + x1*y0 - m) /
// R).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "paillier/secret_modulus.h"

namespace shieldfl::paillier {

class PairRing {
 public:
  // As SecretModulus.
  explicit PairRing(std::span<const std::uint64_t> modulus);

  [[nodiscard]] const SecretModulus& modulus() const { return modulus_; }
  [[nodiscard]] std::size_t words() const { return modulus_.words(); }
  [[nodiscard]] std::size_t scratch_words() const { return scratch_words_; }
  // R modulo n^2: 1 in Montgomery's form.
  [[nodiscard]] const std::uint64_t* r() const { return r_.data(); }

  // Of all below, the result may be an operand.

  // A residue below n^2 becomes a pair, and back.
  void split(const std::uint64_t* residue, std::uint64_t* pair, std::uint64_t* scratch) const;
  void join(const std::uint64_t* pair, std::uint64_t* residue, std::uint64_t* scratch) const;

  void multiply(const std::uint64_t* left, const std::uint64_t* right, std::uint64_t* out,
                std::uint64_t* scratch) const;
  // out = pair * (1 + plaintext * n).
  void add_plaintext(const std::uint64_t* pair, const std::uint64_t* plaintext, std::uint64_t* out,
                     std::uint64_t* scratch) const;

  // out = left * right / R.
  void montgomery_multiply(const std::uint64_t* left, const std::uint64_t* right, std::uint64_t* out,
                           std::uint64_t* scratch) const;
  void montgomery_square(const std::uint64_t* pair, std::uint64_t* out, std::uint64_t* scratch) const;
  // out = left * right / R for a right whose upper half is zero, and is not given.
  void montgomery_multiply_by_low(const std::uint64_t* left, const std::uint64_t* right_low,
                                  std::uint64_t* out, std::uint64_t* scratch) const;
  // To Montgomery's form, and back.
  void to_montgomery(const std::uint64_t* pair, std::uint64_t* out, std::uint64_t* scratch) const;
  void from_montgomery(const std::uint64_t* pair, std::uint64_t* out, std::uint64_t* scratch) const;

 private:
  std::uint64_t cross_products(const std::uint64_t* left, const std::uint64_t* right, std::uint64_t* cross,
                               std::uint64_t* scratch) const;
  void montgomery_finish(std::uint64_t* low_product, std::uint64_t* cross, std::uint64_t cross_top,
                         std::uint64_t* out, std::uint64_t* scratch) const;
  // Whether both halves are below n.
  [[nodiscard]] bool is_pair(const std::uint64_t* pair) const;

  SecretModulus modulus_;
  SecretVector<std::uint64_t> r_;
  SecretVector<std::uint64_t> r_squared_;
  SecretVector<std::uint64_t> one_;
  std::size_t scratch_words_;
};

}  // namespace shieldfl::paillier
