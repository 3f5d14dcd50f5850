// From quantised values to the message polynomial of one ciphertext, and back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckks/parameters.h"
#include "common/secure_memory.h"
#include "ring/row_kernels.h"

namespace shieldfl::ckks {

// Value v of a block goes into coefficient v mod N, field v / N: field j of a coefficient is
// value * 2^(log2_scale + j * field_bits). A block that is not full leaves the rest zero.
// Refers to the parameters, which must outlive it.
class ExactPacking {
 public:
  explicit ExactPacking(const Parameters& parameters);

  // Adds the message of the first `count` values to `row`, the residues modulo prime number `prime_index`, in
  // coefficient form. `values` has values_per_block() entries of at most max_magnitude(), zero past `count`.
  void add_message(std::span<const std::int64_t> values, std::size_t count, std::size_t prime_index,
                   std::span<std::uint64_t> row) const;

  // Rounds the noise away, takes the fields apart and writes them times 2^-fraction_bits. `rows`: one row of
  // coefficient residues for each prime, overwritten. Fills sums.size() values. False when they cannot be the
  // sums of `clients` values in range, or when what lies beyond the last field is not zero: such a total was
  // not made of fresh encryptions. Constant-time in the rows.
  [[nodiscard]] bool read_sums(std::span<std::uint64_t> rows, std::uint64_t clients, std::span<double> sums);

 private:
  void read_messages(std::span<std::uint64_t> rows);

  const Parameters& parameters_;
  const ring::RowKernels& kernels_;
  std::vector<std::uint64_t> field_factors_;  // [prime][field]
  // Scratch: each coefficient's packed sums, with an offset that makes every field positive.
  SecretVector<std::uint64_t> low_;
  SecretVector<std::uint64_t> high_;
};

}  // namespace shieldfl::ckks
