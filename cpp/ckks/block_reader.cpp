#include "ckks/block_reader.h"

#include <algorithm>

namespace shieldfl::ckks {

BlockReader::BlockReader(const CiphertextView& view)
    : view_(view), kernels_(ring::row_kernels(instruction_set())), corrections_(view.facts.block_words()) {
  const ParameterFacts& facts = view.facts;
  for (std::size_t row = 0; row < facts.row_count(); ++row) {
    const unsigned dropped = row < facts.primes.size() ? facts.dropped_bits0 : facts.dropped_bits1;
    const std::uint64_t q = facts.row_prime(row);
    const std::uint64_t too_much = dropped == 0 ? 0 : view.frame_ids.size() / 2;
    std::fill_n(corrections_.begin() + static_cast<std::ptrdiff_t>(row * facts.degree), facts.degree,
                (q - too_much % q) % q);
  }
}

void BlockReader::read(std::size_t block, std::span<std::uint64_t> rows) const {
  const ParameterFacts& facts = view_.facts;
  for_each_row(facts, view_.kind, view_.block(block),
               [&](std::size_t row, std::span<const std::uint8_t> packed) {
                 ring::unpack_residues(packed, facts.row_width(view_.kind, row),
                                       rows.subspan(row * facts.degree, facts.degree));
               });
  if (facts.primes.size() == 2) {
    const std::uint64_t factor = facts.primes[0] % facts.primes[1];
    for (std::uint64_t* half : {rows.data(), rows.data() + rows.size() / 2}) {
      kernels_.from_digits(half, half + facts.degree, facts.degree, factor, facts.primes[1]);
    }
  }
  if (view_.kind == FrameKind::kCkksBatch) {
    // The middle of what was left out may lie above the modulus.
    for (std::size_t row = 0; row < facts.row_count(); row += facts.primes.size()) {
      for (std::uint64_t& residue : rows.subspan(row * facts.degree, facts.degree)) {
        residue = ring::subtract_if_above(residue, facts.primes[0]);
      }
    }
  }
  for (std::size_t row = 0; row < facts.row_count(); ++row) {
    const std::size_t first = row * facts.degree;
    kernels_.add_row(corrections_.data() + first, facts.degree, facts.row_prime(row), rows.data() + first);
  }
}

}  // namespace shieldfl::ckks
