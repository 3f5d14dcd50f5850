#include "noise/noise_table.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "common/cpu_features.h"
#include "common/error.h"
#include "common/verify.h"
#include "noise/share_kernels.h"

namespace shieldfl::noise {

NoiseTable::NoiseTable(std::span<const std::uint64_t> high, std::span<const std::uint64_t> low,
                       std::span<const std::uint32_t> others)
    : last_(low.begin(), low.end()) {
  const std::size_t count = high.size();
  if (count < 2 || count > std::size_t{1} << kMostLog2Buckets || !std::has_single_bit(count) ||
      low.size() != count || others.size() != count) {
    throw Error(ErrorCode::kParameter, "a table of noise needs three columns of 2^1 to 2^20 buckets each");
  }
  if (*std::max_element(others.begin(), others.end()) >= count) {
    throw Error(ErrorCode::kParameter, "a table of noise has magnitudes below the number of its buckets");
  }
  buckets_.reserve(count);
  next_.reserve(count);
  for (std::size_t b = 0; b < count; ++b) {
    buckets_.push_back((high[b] >> 32 << 32) | others[b]);
    next_.push_back(static_cast<std::uint32_t>(high[b]));
  }
}

void NoiseTable::add_draws_vartime(std::span<const std::int32_t> values, std::span<std::int32_t> sums,
                                   std::span<const std::uint64_t> words, RandomStream& more,
                                   std::int32_t most) const {
  VERIFY(values.size() % kShareGroup == 0 && sums.size() == values.size() && words.size() == values.size());
  VERIFY(most > 0);
  VERIFY(std::all_of(values.begin(), values.end(),
                     [](std::int64_t value) { return std::abs(value) <= 1 << 30; }));
  const std::uint64_t mask = buckets_.size() - 1;
  const bool undecided = share_kernels(instruction_set())
                             .add_draws_vartime(values.data(), sums.data(), words.data(),
                                                values.size() / kShareGroup, buckets_.data(), mask, most);
  if (!undecided) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bucket = (words[i] >> 1) & mask;
    const std::uint64_t entry = buckets_[bucket];
    bool own = words[i] >> 32 < entry >> 32;
    if (words[i] >> 32 == entry >> 32) {
      const auto next = static_cast<std::uint32_t>(more.next_u64());
      const std::uint64_t last = more.next_u64();
      own = next != next_[bucket] ? next < next_[bucket] : last < last_[bucket];
    }
    const auto magnitude = static_cast<std::int64_t>(own ? bucket : entry & 0xffffffff);
    const std::int64_t sum = values[i] + ((words[i] & 1) != 0 ? -magnitude : magnitude);
    sums[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(sum, -most, most));
  }
}

}  // namespace shieldfl::noise
