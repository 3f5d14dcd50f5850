#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "noise/noise_table.h"
#include "tests/check.h"
#include "tests/statistics.h"

namespace noise_noise_table_tests {

using namespace shieldfl;
using namespace shieldfl::tests;
using noise::NoiseTable;

namespace {

std::vector<std::int32_t> draws(const NoiseTable& table, std::span<const std::uint64_t> words,
                                std::uint64_t seed) {
  const std::vector<std::int32_t> zeros(words.size());
  std::vector<std::int32_t> sums(words.size());
  RandomStream more(InsecureTestRandom(seed).next(), 0);
  table.add_draws_vartime(zeros, sums, words, more, 1 << 30);
  return sums;
}

}  // namespace

TEST(draws_have_the_probabilities_of_their_table) {
  constexpr std::size_t kBuckets = 16;
  constexpr std::size_t kDraws = 400'000;
  std::mt19937_64 generator(31);
  std::vector<std::uint64_t> high(kBuckets);
  std::vector<std::uint64_t> low(kBuckets);
  std::vector<std::uint32_t> others(kBuckets);
  std::array<double, kBuckets> probability{};
  for (std::size_t b = 0; b < kBuckets; ++b) {
    high[b] = generator();
    low[b] = generator();
    others[b] = static_cast<std::uint32_t>(generator() % kBuckets);
    const double own = std::ldexp(static_cast<double>(high[b]), -64);
    probability[b] += own / kBuckets;
    probability[others[b]] += (1.0 - own) / kBuckets;
  }
  std::vector<std::uint64_t> words(kDraws);
  RandomStream stream(InsecureTestRandom(32).next(), 0);
  for (auto& word : words) word = stream.next_u64();
  std::array<std::array<double, kBuckets>, 2> found{};
  for (const std::int32_t draw : draws(NoiseTable(high, low, others), words, 33)) {
    found[draw < 0 ? 1 : 0][static_cast<std::size_t>(std::abs(draw))] += 1.0;
  }
  double statistic = 0.0;
  for (std::size_t magnitude = 0; magnitude < kBuckets; ++magnitude) {
    for (std::size_t sign = 0; sign < 2; ++sign) {
      if (magnitude == 0 && sign == 1) continue;  // 0 has one sign only
      const double expected = probability[magnitude] * kDraws / (magnitude == 0 ? 1.0 : 2.0);
      CHECK(expected > 25.0);
      const double difference = found[sign][magnitude] - expected;
      statistic += difference * difference / expected;
    }
  }
  CHECK(statistic < chi_square_limit(2 * kBuckets - 2));
}

// Both buckets' thresholds have the words' first 32 bits, and the last 96 of the first number, or one more.
TEST(more_bits_decide_where_the_first_do_not) {
  constexpr std::size_t kWords = 16;
  constexpr std::uint64_t kFirst = 0x12345678;
  RandomStream same(InsecureTestRandom(41).next(), 0);
  const std::uint64_t next = same.next_u64() & 0xffffffff;
  const std::uint64_t last = same.next_u64();
  const std::vector<std::uint64_t> high(2, (kFirst << 32) | next);
  const std::vector<std::uint32_t> others = {0, 0};
  const std::vector<std::uint64_t> words(kWords, (kFirst << 32) | 2);  // bucket 1, positive
  const auto drawn = [&](std::uint64_t threshold_low) {
    return draws(NoiseTable(high, std::vector<std::uint64_t>(2, threshold_low), others), words, 41);
  };
  const auto equal = drawn(last);
  const auto above = drawn(last + 1);
  CHECK(equal[0] == 0 && above[0] == 1);
  // The numbers of the others differ from the thresholds in their next 32 bits.
  for (std::size_t i = 1; i < kWords; ++i) {
    const bool below = (same.next_u64() & 0xffffffff) < next;
    same.next_u64();
    CHECK(equal[i] == (below ? 1 : 0) && above[i] == equal[i]);
  }
}

TEST(tables_that_make_no_sense_are_refused) {
  const std::vector<std::uint64_t> two(2);
  const std::vector<std::uint64_t> three(3);
  const std::vector<std::uint32_t> others = {0, 1};
  CHECK_THROWS(NoiseTable(three, three, std::vector<std::uint32_t>(3)), ErrorCode::kParameter);
  CHECK_THROWS(NoiseTable(two, three, others), ErrorCode::kParameter);
  CHECK_THROWS(NoiseTable(two, two, std::vector<std::uint32_t>(4)), ErrorCode::kParameter);
  CHECK_THROWS(NoiseTable(two, two, std::vector<std::uint32_t>{0, 2}), ErrorCode::kParameter);
  CHECK_THROWS(NoiseTable({}, {}, {}), ErrorCode::kParameter);
  const std::vector<std::uint64_t> one(1);
  CHECK_THROWS(NoiseTable(one, one, std::vector<std::uint32_t>(1)), ErrorCode::kParameter);
}

}  // namespace noise_noise_table_tests
