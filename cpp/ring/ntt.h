// The negacyclic number-theoretic transform: products in Z_q[X]/(X^N + 1) become point-wise.
//
// Order and roots are SEAL's: the forward transform takes coefficients in natural order and gives values in
// bit-reversed order, at the odd powers of the smallest primitive 2N-th root of unity. Keys that SEAL made
// are therefore used as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/modulus.h"

namespace shieldfl::ring {

class Ntt {
 public:
  // Precondition, checked (Error kParameter): degree is a power of two from 2 to 2^16 and q = 1 mod 2 *
  // degree.
  Ntt(std::size_t degree, Modulus modulus);

  [[nodiscard]] std::size_t degree() const { return degree_; }
  [[nodiscard]] const Modulus& modulus() const { return modulus_; }
  [[nodiscard]] std::uint64_t root() const { return root_; }

  // In place; `values` has `degree` elements in [0, q), before and after. Constant-time in the values.
  void forward(std::span<std::uint64_t> values) const;
  void inverse(std::span<std::uint64_t> values) const;

 private:
  std::size_t degree_;
  Modulus modulus_;
  std::uint64_t root_;
  std::vector<Factor> root_powers_;          // psi^i at index bit_reverse(i)
  std::vector<Factor> inverse_root_powers_;  // psi^-i at index bit_reverse(i)
  Factor inverse_degree_{};
};

}  // namespace shieldfl::ring
