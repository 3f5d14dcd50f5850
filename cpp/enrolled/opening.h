// Opening the blocks of a total, whatever the scheme.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/error.h"
#include "common/secure_memory.h"
#include "common/taint.h"
#include "common/verify.h"
#include "enrolled/ciphertext.h"
#include "enrolled/sum_key_head.h"
#include "parallel/parallel_for.h"
#include "scheme/opened_sums.h"

namespace shieldfl::enrolled {

// Throws unless there is an answer of each authority, and each is for this total: Error(kParameter) for none
// or more than kMaxAuthorities, and as check_answers() does.
template <typename View, typename SumKey>
void check_sum_keys(std::span<const SumKey> sum_keys, const SumContext& context, const View& total,
                    const Digest& total_digest, std::uint32_t unit, std::uint64_t count) {
  if (sum_keys.empty() || sum_keys.size() > kMaxAuthorities) {
    throw Error(ErrorCode::kParameter, "a total is opened with the sum key of each authority, three at most");
  }
  for (const SumKey& sum_key : sum_keys) {
    check_answers(sum_key.head(), context, total.head.participants, total_digest, unit, count);
  }
}

// Writes the sums in a total, each one integer times 2^-fraction_bits, which a double represents, to
// `fields`, as many as the layout has: where there are weights, their sum is the last, and is returned as a
// weight. `make_opening(threads' own)` gives each thread a functor (block, sums) that writes the block's sums
// and says whether they can be any. `blocks_worth_a_thread`: as for threads_for(). Throws Error(kWireFormat)
// where some cannot. Whatever is thrown, what was opened is wiped.
template <typename View, typename MakeOpening>
std::optional<double> open_blocks(const View& total, std::span<double> fields, std::size_t threads,
                                  std::size_t blocks_worth_a_thread, MakeOpening make_opening) {
  const auto& facts = total.head.facts;
  const std::uint64_t count = total.head.layout.field_count();
  VERIFY(fields.size() == count);
  std::atomic<bool> valid = true;
  const std::size_t blocks = total.head.block_count();
  try {
    parallel_for(blocks, threads_for(threads, blocks, blocks_worth_a_thread), 1,
                 [&](std::size_t begin, std::size_t end) {
                   auto opening = make_opening();
                   for (std::size_t block = begin; block < end; ++block) {
                     const std::uint64_t first = block * facts.values_per_block();
                     const auto out = fields.subspan(
                         first, std::min<std::uint64_t>(facts.values_per_block(), count - first));
                     const bool in_range = opening.open(block, out);
                     // Whoever opens is told: by the sums, or by the error.
                     declassify(&in_range, sizeof in_range);
                     if (!in_range) valid = false;
                   }
                 });
    if (!valid) {
      throw Error(ErrorCode::kWireFormat,
                  "the total does not open to sums of values in range: its list of clients is not that of "
                  "the ciphertexts in it, one of them was altered" +
                      std::string(facts.holds_any_sum() ? "" : ", or a sum is larger than sum_bits hold"));
    }
  } catch (...) {
    secure_wipe(fields.data(), fields.size_bytes());
    throw;
  }
  if (!total.head.layout.weighted) return std::nullopt;
  return facts.fixed_point().weight_from_value(fields.back());
}

// What `open_into` (the layout's fields, to its weights' sum) gives in memory of its own.
template <typename OpenInto>
scheme::OpenedSums in_new_memory(const Layout& layout, OpenInto open_into) {
  scheme::OpenedSums opened{std::vector<double>(layout.field_count()), std::nullopt};
  opened.weight_sum = open_into(std::span(opened.values));
  opened.values.resize(layout.value_count);
  return opened;
}

}  // namespace shieldfl::enrolled
