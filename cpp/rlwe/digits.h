// Numbers modulo q = q0 q1 ... as mixed-radix digits: c = digit0 + q0 (digit1 + q1 (digit2 + ...)).
//
// Polynomials travel as digits: the lowest bits of digit0 are the lowest bits of the coefficient, so that
// those which hold noise alone can be left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/row_kernels.h"

namespace shieldfl::rlwe {

inline constexpr std::size_t kMaxPrimes = 4;

// A polynomial is a row of `degree` entries for each prime. No prime may be twice as large as a later one.
class DigitBasis {
 public:
  DigitBasis(std::size_t degree, std::span<const std::uint64_t> primes);

  [[nodiscard]] std::size_t degree() const { return degree_; }
  [[nodiscard]] const std::vector<std::uint64_t>& primes() const { return primes_; }
  [[nodiscard]] std::size_t words() const { return degree_ * primes_.size(); }  // of a polynomial

  // Residues, each below its prime, to digits and back, in place. Constant-time in the residues.
  void from_residues(std::span<std::uint64_t> polynomial) const;
  void to_residues(std::span<std::uint64_t> polynomial) const;

  // Sums of digits, each below 2^63, to the digits of the same number: what a digit has above its prime goes
  // on to the next. In place; for public values: the running time may tell them.
  void reduce(std::span<std::uint64_t> polynomial) const;

 private:
  [[nodiscard]] std::span<std::uint64_t> row(std::span<std::uint64_t> polynomial, std::size_t prime) const {
    return polynomial.subspan(prime * degree_, degree_);
  }

  std::size_t degree_;
  std::vector<std::uint64_t> primes_;
  std::vector<std::uint64_t> inverses_;  // [i * prime_count + j], i < j: q_i^-1 modulo q_j
  const ring::RowKernels* kernels_;
};

}  // namespace shieldfl::rlwe
