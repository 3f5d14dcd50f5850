// From quantised values to the message polynomial of one ciphertext, and back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckks/parameters.h"

namespace shieldfl::ckks {

// Value v of a block goes into coefficient v mod N, field v / N: field j of a coefficient is
// value * 2^(log2_scale + j * field_bits). A block that is not full leaves the rest zero.
class ExactPacking {
 public:
  explicit ExactPacking(const Parameters& parameters);

  // Adds the message of `values` (at most values_per_block, |value| <= max_magnitude, as integers) to `row`,
  // the residues modulo prime number `prime_index`, in coefficient form.
  void add_message(std::span<const std::int64_t> values, std::size_t prime_index,
                   std::span<std::uint64_t> row) const;

  // Rounds the noise away and takes the fields apart. `rows`: one row of coefficient residues for each prime.
  // Fills sums.size() values. False when they cannot be the sums of `clients` values in range, or when what
  // lies beyond the last field is not zero: such a total was not made of fresh encryptions.
  [[nodiscard]] bool read_sums(std::span<const std::uint64_t> rows, std::uint64_t clients,
                               std::span<std::int64_t> sums) const;

 private:
  const Parameters& parameters_;
  std::vector<ring::Factor> field_factors_;  // [prime][field]
  ring::Factor garner_{};                    // q_0^-1 mod q_1, where there are two primes
};

}  // namespace shieldfl::ckks
