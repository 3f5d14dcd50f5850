// Opening the blocks of a total, whatever the scheme.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/huge_pages.h"
#include "common/secure_memory.h"
#include "common/taint.h"
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

// The sums in a total, each one integer times 2^-fraction_bits, which a double represents.
// `make_opening(threads' own)` gives each thread a functor (block, sums) that writes the block's sums and
// says whether they can be any. `blocks_worth_a_thread`: as for threads_for(). Throws Error(kWireFormat), and
// has wiped what was opened, where some cannot.
template <typename View, typename MakeOpening>
scheme::OpenedSums open_blocks(const View& total, std::size_t threads, std::size_t blocks_worth_a_thread,
                               MakeOpening make_opening) {
  const auto& facts = total.head.facts;
  const std::uint64_t count = total.head.layout.field_count();
  std::vector<double> values;
  values.reserve(count);
  prefer_huge_pages(values.data(), count * sizeof(double));
  values.resize(count);
  std::atomic<bool> valid = true;
  const std::size_t blocks = total.head.block_count();
  parallel_for(blocks, threads_for(threads, blocks, blocks_worth_a_thread), 1,
               [&](std::size_t begin, std::size_t end) {
                 auto opening = make_opening();
                 for (std::size_t block = begin; block < end; ++block) {
                   const std::uint64_t first = block * facts.values_per_block();
                   const auto out = std::span(values).subspan(
                       first, std::min<std::uint64_t>(facts.values_per_block(), count - first));
                   const bool in_range = opening.open(block, out);
                   // Whoever opens is told: by the sums, or by the error.
                   declassify(&in_range, sizeof in_range);
                   if (!in_range) valid = false;
                 }
               });
  if (!valid) {
    secure_wipe(values.data(), values.size() * sizeof values[0]);
    throw Error(ErrorCode::kWireFormat,
                "the total does not open to sums of values in range: its list of clients is not that of the "
                "ciphertexts in it, or one of them was altered");
  }
  scheme::OpenedSums opened{std::move(values), std::nullopt};
  if (total.head.layout.weighted) {
    opened.weight_sum = facts.fixed_point().weight_from_value(opened.values.back());
    opened.values.pop_back();
  }
  return opened;
}

}  // namespace shieldfl::enrolled
