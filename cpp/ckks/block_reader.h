// Ciphertexts of a batch or a total, as residues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ckks/ciphertext.h"
#include "ring/row_kernels.h"

namespace shieldfl::ckks {

// Refers to the view, which must outlive it. One for each thread.
class BlockReader {
 public:
  explicit BlockReader(const CiphertextView& view);

  // The residues of ciphertext number `block`: block_words() of them, c0 then c1, a row for each prime.
  void read(std::size_t block, std::span<std::uint64_t> rows) const;

 private:
  const CiphertextView& view_;
  const ring::RowKernels& kernels_;
  rlwe::DigitBasis digits_;
  // What makes the mean of the error from dropped bits zero, or 1/2 for an odd number of clients: a row of
  // the same number for each row.
  std::vector<std::uint64_t> corrections_;
};

}  // namespace shieldfl::ckks
