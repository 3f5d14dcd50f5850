// From quantised values to the message polynomial of one ciphertext, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/secure_memory.h"
#include "ring/row_kernels.h"
#include "rlwe/digits.h"
#include "rlwe/field_kernels.h"
#include "scheme/fixed_point.h"

namespace shieldfl::rlwe {

// Value v of a ciphertext is field v / row_values of coefficient v mod row_values, as
// value * 2^(log2_scale + field * field_bits). Coefficients from row_values on, and fields behind the last
// value, hold zero.
struct FieldShape {
  std::size_t row_values = 0;  // at most the degree
  unsigned fields = 0;         // of a coefficient
  unsigned field_bits = 0;
  unsigned log2_scale = 0;  // the factor above the noise
  scheme::FixedPoint fixed_point;

  [[nodiscard]] std::size_t values() const { return row_values * fields; }  // of a ciphertext
};

class FieldPacking {
 public:
  FieldPacking(DigitBasis basis, const FieldShape& shape);

  // Adds the message of the first `count` values to `row`, the residues modulo prime number `prime_index`, in
  // coefficient form. `values` has an entry for each coefficient and field, field after field, of at most
  // max_magnitude(); those that hold no value are zero.
  void add_message(std::span<const std::int64_t> values, std::size_t count, std::size_t prime_index,
                   std::span<std::uint64_t> row) const;

  // Rounds the noise away, takes the fields apart and writes them times 2^-fraction_bits. `rows`: one row of
  // coefficient residues for each prime, overwritten; each coefficient is `too_much` above its own, which is
  // below a quarter of any prime. Fills sums.size() values. False when they cannot be the
  // sums of `clients` values in range, or when what holds no value is not zero: such a total was not made of
  // fresh encryptions. Constant-time in the rows.
  [[nodiscard]] bool read_sums(std::span<std::uint64_t> rows, std::uint64_t clients, std::uint64_t too_much,
                               std::span<double> sums);

 private:
  // Packed numbers that a coefficient takes.
  [[nodiscard]] std::size_t parts() const { return basis_.primes().size() > 2 ? 2 : 1; }
  void read_messages(std::span<const std::uint64_t> digits, std::size_t first, std::size_t count,
                     std::uint64_t too_much);
  void read_long_messages(std::span<const std::uint64_t> digits, std::size_t first, std::size_t count,
                          std::uint64_t too_much);

  DigitBasis basis_;
  FieldShape shape_;
  const ring::RowKernels& kernels_;
  const FieldKernels& field_kernels_;
  std::vector<std::uint64_t> field_factors_;  // [prime][field]
  // Fields that the first packed number of a coefficient holds; those behind them are in the second.
  unsigned low_fields_;
  // Scratch: packed sums of some coefficients, of each two numbers of 128 bits at most, with an offset that
  // makes every field positive.
  SecretVector<std::uint64_t> low_[2];
  SecretVector<std::uint64_t> high_[2];
};

}  // namespace shieldfl::rlwe
