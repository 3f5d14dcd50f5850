#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "mask/bitset.h"
#include "mask/consensus.h"
#include "mask/votes.h"
#include "mask/words.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace mask_votes_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using tests::Bools;
using tests::kSizes;
using tests::pointers;
using tests::random_clients;

namespace {

Bitset naive_consensus(const std::vector<std::uint32_t>& counts, std::size_t voters, double rho) {
  Bools chosen(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    chosen[i] = static_cast<double>(counts[i]) / static_cast<double>(voters) >= rho;
  }
  return Bitset::from_bools(chosen);
}

std::vector<double> ratios(std::size_t voters) {
  std::vector<double> grid;
  for (int i = 1; i <= 40; ++i) grid.push_back(i / 40.0);
  for (std::size_t votes = 1; votes <= voters; ++votes) {
    const double share = static_cast<double>(votes) / static_cast<double>(voters);
    grid.push_back(share);
    grid.push_back(std::nextafter(share, 0.0));
    if (share < 1) grid.push_back(std::nextafter(share, 1.0));
  }
  grid.push_back(std::numeric_limits<double>::denorm_min());
  return grid;
}

}  // namespace

TEST(votes_needed_is_the_smallest_count_that_reaches_the_ratio) {
  for (std::uint64_t voters = 1; voters <= 300; ++voters) {
    for (const double rho : ratios(voters)) {
      const std::uint64_t votes = votes_needed(rho, voters);
      CHECK(votes >= 1 && votes <= voters);
      CHECK(static_cast<double>(votes) / static_cast<double>(voters) >= rho);
      CHECK(static_cast<double>(votes - 1) / static_cast<double>(voters) < rho);
    }
  }
  CHECK(std::ceil(0.28 * 25) == 8);  // the product's rounding, which must not cost a vote
  CHECK(votes_needed(0.28, 25) == 7);
  CHECK(votes_needed(0.55, 20) == 11);
  CHECK(votes_needed(1.0, 7) == 7);
}

TEST(votes_match_the_definition_for_every_ratio_and_number_of_clients) {
  std::mt19937_64 generator(21);
  for (std::size_t voters = 1; voters <= 40; ++voters) {
    for (const std::size_t size : kSizes) {
      if (size > 1000 && voters % 13 != 0) continue;
      std::vector<std::uint32_t> counts(size);
      std::vector<Bitset> masks;
      Votes votes(size);
      for (const Bools& client : random_clients(voters, size, generator)) {
        for (std::size_t i = 0; i < size; ++i) counts[i] += client[i];
        masks.push_back(Bitset::from_bools(client));
        votes.add(masks.back());
      }
      CHECK(votes.voters() == voters && votes.size() == size);
      std::vector<std::uint32_t> counted(size, 0xeeeeeeee);
      votes.counts(counted);
      CHECK(counted == counts);
      for (std::uint64_t threshold = 0; threshold <= voters + 2; ++threshold) {
        Bools enough(size);
        for (std::size_t i = 0; i < size; ++i) enough[i] = counts[i] >= threshold;
        CHECK(votes.at_least(threshold) == Bitset::from_bools(enough));
      }
      for (const double rho : ratios(voters)) {
        const Bitset expected = naive_consensus(counts, voters, rho);
        CHECK(votes.consensus(rho) == expected);
        CHECK(negotiate(pointers(masks), rho) == expected);
      }
    }
  }
}

TEST(votes_count_past_eight_bits) {
  std::mt19937_64 generator(22);
  constexpr std::size_t kSize = 200;
  constexpr std::size_t kVoters = 600;
  std::vector<std::uint32_t> counts(kSize);
  std::vector<Bitset> masks;
  Votes votes(kSize);
  for (const Bools& client : random_clients(kVoters - 300, kSize, generator)) {
    for (std::size_t i = 0; i < kSize; ++i) counts[i] += client[i];
    masks.push_back(Bitset::from_bools(client));
  }
  for (std::size_t i = 0; i < kSize; ++i) counts[i] += 300;  // what all of them chose reaches every plane
  masks.resize(kVoters, Bitset::full(kSize));
  for (const Bitset& mask : masks) votes.add(mask);
  std::vector<std::uint32_t> counted(kSize);
  votes.counts(counted);
  CHECK(counted == counts);
  for (const double rho : {0.3, 0.5, 0.75, 0.8, 1.0}) {
    CHECK(votes.consensus(rho) == naive_consensus(counts, kVoters, rho));
    CHECK(negotiate(pointers(masks), rho) == naive_consensus(counts, kVoters, rho));
  }
}

TEST(votes_take_a_bit_a_position_for_every_digit_of_their_number) {
  constexpr std::uint64_t kSize = 10'001;
  const Bitset mask = Bitset::full(kSize);
  Votes votes(kSize);
  CHECK(votes.memory_bytes() == 0);
  for (std::uint64_t voters = 1; voters <= 1000; ++voters) {
    votes.add(mask);
    CHECK(votes.memory_bytes() == static_cast<std::uint64_t>(std::bit_width(voters)) * words_for(kSize) * 8);
  }
}

TEST(votes_do_not_depend_on_threads) {
  std::mt19937_64 generator(23);
  constexpr std::size_t kSize = 3'500'003;  // several threads' worth, no multiple of 64
  std::vector<Bitset> masks;
  for (int client = 0; client < 9; ++client) masks.push_back(tests::random_half(kSize, generator));
  Votes alone(kSize);
  for (const Bitset& mask : masks) alone.add(mask, 1);
  std::vector<std::uint32_t> expected(kSize);
  alone.counts(expected, 1);
  const Bitset consensus = alone.consensus(0.5, 1);
  for (std::size_t i = 0; i < kSize; i += 1001) CHECK(consensus.test(i) == (expected[i] >= 5));
  CHECK(negotiate(pointers(masks), 0.5, 1) == consensus);
  for (const std::size_t threads : {2, 3, 7, 0}) {
    Votes votes(kSize);
    for (const Bitset& mask : masks) votes.add(mask, threads);
    std::vector<std::uint32_t> counts(kSize);
    votes.counts(counts, threads);
    CHECK(counts == expected);
    CHECK(votes.consensus(0.5, threads) == consensus);
    CHECK(negotiate(pointers(masks), 0.5, threads) == consensus);
  }
}

TEST(votes_refuse_bad_input_and_go_on) {
  Votes votes(65);
  CHECK_THROWS(votes.consensus(0.5), ErrorCode::kParameter);
  const Bitset mask = Bitset::full(65);
  votes.add(mask);
  CHECK_THROWS((votes.add(Bitset(64)), 0), ErrorCode::kParameter);
  CHECK_THROWS((votes.add(mask, 100'000), 0), ErrorCode::kParameter);
  for (const double rho : {0.0, -0.5, 1.0000001, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS(votes.consensus(rho), ErrorCode::kParameter);
    CHECK_THROWS(negotiate(std::vector<const Bitset*>{&mask}, rho), ErrorCode::kParameter);
  }
  std::vector<std::uint32_t> counts(64);
  CHECK_THROWS((votes.counts(counts), 0), ErrorCode::kParameter);
  CHECK(votes.voters() == 1);
  CHECK(votes.consensus(1.0) == mask);
  const Bitset other(64);
  CHECK_THROWS(negotiate({}, 0.5), ErrorCode::kParameter);
  CHECK_THROWS(negotiate(std::vector<const Bitset*>{&mask, &other}, 0.5), ErrorCode::kParameter);
  CHECK_THROWS(Votes(kMaxPositions + 1), ErrorCode::kParameter);
}

}  // namespace mask_votes_tests
