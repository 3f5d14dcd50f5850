#include "ckks/block_reader.h"

#include <algorithm>

#include "common/verify.h"

namespace shieldfl::ckks {

BlockReader::BlockReader(const CiphertextView& view)
    : view_(view),
      kernels_(ring::row_kernels(instruction_set())),
      digits_(view.facts.degree, view.facts.primes),
      corrections_(view.facts.block_words()) {
  const ParameterFacts& facts = view.facts;
  for (std::size_t row = 0; row < facts.row_count(); ++row) {
    const unsigned dropped = row < facts.primes.size() ? facts.dropped_bits0 : facts.dropped_bits1;
    const std::uint64_t q = view.format.rows()[row].modulus;
    const std::uint64_t too_much = dropped == 0 ? 0 : view.frame_ids.size() / 2;
    std::fill_n(corrections_.begin() + static_cast<std::ptrdiff_t>(row * facts.degree), facts.degree,
                (q - too_much % q) % q);
  }
}

void BlockReader::read(std::size_t block, std::span<std::uint64_t> rows) const {
  const ParameterFacts& facts = view_.facts;
  VERIFY(rows.size() == facts.block_words());
  view_.format.unpack(view_.block(block), rows);
  for (const auto half : {rows.first(digits_.words()), rows.last(digits_.words())}) {
    digits_.to_residues(half);
    if (view_.kind != FrameKind::kCkksBatch) continue;
    // The middle of what was left out may lie above the modulus.
    for (std::uint64_t& residue : half.first(facts.degree)) {
      residue = ring::subtract_if_above(residue, facts.primes[0]);
    }
  }
  for (std::size_t row = 0; row < facts.row_count(); ++row) {
    const std::size_t first = row * facts.degree;
    kernels_.add_row(corrections_.data() + first, facts.degree, view_.format.rows()[row].modulus,
                     rows.data() + first);
  }
}

}  // namespace shieldfl::ckks
