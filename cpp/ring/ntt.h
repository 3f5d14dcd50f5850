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

#include "common/cpu_features.h"
#include "common/secure_memory.h"
#include "ring/modulus.h"
#include "ring/ntt_kernels.h"

namespace shieldfl::ring {

// A row of fixed factors, prepared for products by the Ntt that made it. Wiped, since it may be a secret key.
struct PreparedRow {
  SecretVector<std::uint64_t> first;
  SecretVector<std::uint64_t> second;
};

class Ntt {
 public:
  // Preconditions, checked (Error kParameter): degree is a power of two from 2 to 2^16 and q = 1 mod 2 *
  // degree. Rings that are too small for vectors, or moduli too long, use the scalar kernels.
  Ntt(std::size_t degree, Modulus modulus, InstructionSet set = instruction_set());

  [[nodiscard]] std::size_t degree() const { return degree_; }
  [[nodiscard]] const Modulus& modulus() const { return modulus_; }
  [[nodiscard]] std::uint64_t root() const { return root_; }

  // In place; `values` has `degree` elements in [0, q), before and after. Constant-time in the values.
  void forward(std::span<std::uint64_t> values) const;
  void inverse(std::span<std::uint64_t> values) const;

  // Prepares a row of factors in [0, q), of any length.
  [[nodiscard]] PreparedRow prepare(std::span<const std::uint64_t> factors) const;
  // out[i] = in[i] * factors[i] mod q for residues in [0, q); in and out may be the same row. Constant-time.
  void multiply(std::span<const std::uint64_t> in, const PreparedRow& factors,
                std::span<std::uint64_t> out) const;

 private:
  [[nodiscard]] NttTable table() const;

  std::size_t degree_;
  Modulus modulus_;
  const NttKernels* kernels_;
  std::uint64_t root_;
  PreparedRow root_powers_;          // psi^i at index bit_reverse(i)
  PreparedRow inverse_root_powers_;  // psi^-i at index bit_reverse(i)
  PreparedRow inverse_degree_;
};

}  // namespace shieldfl::ring
