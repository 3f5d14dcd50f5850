#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "mask/bitset.h"
#include "selection/exact_sum.h"
#include "selection/mutual_information.h"
#include "selection/selection.h"
#include "tests/check.h"

namespace selection_selection_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using namespace shieldfl::selection;

namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// Positions in the order that they are chosen in, by sorting.
template <typename T>
std::vector<std::int64_t> ranked(const std::vector<T>& scores) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int64_t left, std::int64_t right) {
    return scores[static_cast<std::size_t>(left)] > scores[static_cast<std::size_t>(right)];
  });
  return order;
}

template <typename T>
Bitset first_of(const std::vector<std::int64_t>& order, std::uint64_t k) {
  return Bitset::from_indices(std::span(order).first(k), order.size());
}

template <typename T>
void check_top_k(const std::vector<T>& scores, std::uint64_t k, std::size_t threads = 1) {
  CHECK(top_k(std::span<const T>(scores), k, threads) == first_of<T>(ranked(scores), k));
}

// What scores are like: many values, a few that repeat, all bit patterns of finite ones, mostly zeros.
template <typename T>
std::vector<std::vector<T>> score_vectors(std::size_t size, std::mt19937_64& generator) {
  std::vector<std::vector<T>> vectors(4, std::vector<T>(size));
  std::normal_distribution<T> normal;
  for (std::size_t i = 0; i < size; ++i) {
    vectors[0][i] = std::abs(normal(generator));
    vectors[1][i] = static_cast<T>(generator() % 3);
    do {
      vectors[2][i] = std::abs(std::bit_cast<T>(
          static_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(generator())));
    } while (!std::isfinite(vectors[2][i]));
    vectors[3][i] = generator() % 10 == 0 ? std::abs(normal(generator)) : T{-0.0};
  }
  return vectors;
}

template <typename T>
void check_ranks() {
  std::mt19937_64 generator(61);
  for (const std::size_t size : {1, 2, 63, 64, 65, 1000}) {
    for (const std::vector<T>& scores : score_vectors<T>(size, generator)) {
      for (std::size_t k = 0; k <= size; k += 1 + size / 50) check_top_k(scores, k);
      check_top_k(scores, size);
    }
  }
}

SelectionLimits limits_of(double budget, double exposed_share, double information_bits) {
  SelectionLimits limits;
  limits.budget = budget;
  limits.exposed_share = exposed_share;
  limits.exposure_decay = 1e-300;  // the required share is 1 - exposed_share
  limits.information_bits = information_bits;
  return limits;
}

Selection selected(const std::vector<double>& scores, const std::vector<double>& weights,
                   const SelectionLimits& limits, std::size_t threads = 1) {
  return select(std::span<const double>(scores), std::span<const double>(weights), limits, threads);
}

}  // namespace

TEST(exact_sums_lose_nothing) {
  ExactSum sum;
  sum.add(1, ExactSum::kLeastExponent);
  sum.add(1, 1000);
  ExactSum larger = sum;
  larger.add(1, ExactSum::kLeastExponent);
  CHECK(larger > sum);
  CHECK(sum.times(2) > larger);
  ExactSum carried;
  for (int i = 0; i < 1 << 10; ++i) carried.add(std::uint64_t{1} << 63, 900);
  ExactSum at_once;
  at_once.add(1, 900 + 73);
  CHECK(carried == at_once);
  ExactSum doubled = sum;
  doubled.add(sum);
  CHECK(doubled == sum.times(2));
  CHECK(ExactSum().is_zero() && !sum.is_zero());
  CHECK(ratio(sum, doubled) == 0.5);
  CHECK(ratio(ExactSum(), sum) == 0.0);
  CHECK(ratio(sum, sum) == 1.0);
}

TEST(top_scores_are_those_of_sorting) {
  check_ranks<float>();
  check_ranks<double>();
}

TEST(top_scores_do_not_depend_on_threads) {
  std::mt19937_64 generator(62);
  for (const std::vector<float>& scores : score_vectors<float>(300'007, generator)) {
    const std::vector<std::int64_t> order = ranked(scores);
    for (const std::size_t threads : {1, 2, 5, 0}) {
      for (const std::uint64_t k : {1, 65'536, 150'000, 300'006}) {
        CHECK(top_k(std::span<const float>(scores), k, threads) == first_of<float>(order, k));
      }
    }
  }
}

TEST(selection_follows_each_limit) {
  const std::vector<double> scores = {1.0, 5.0, 2.0, 8.0, 0.0, 0.0, 0.0, 0.0};  // 16 in all
  const std::vector<double> weights = {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0};
  // Without limits: the scores above the mean.
  Selection selection = selected(scores, weights, limits_of(1.0, 0.9, kUnbounded));
  CHECK(selection.best_count == 2);
  CHECK(selection.mask == Bitset::from_indices(std::vector<std::int64_t>{1, 3}, 8));
  CHECK(selection.share == 13.0 / 16.0);
  // Security asks for more: exactly 15 of 16.
  selection = selected(scores, weights, limits_of(1.0, 1.0 / 16.0, kUnbounded));
  CHECK(selection.security_count == 3 && selection.mask.count() == 3);
  CHECK(selection.share == selection.required_share);
  // The mutual information asks for all but one: one of 8 bins that differs from the others, 0.54 bits.
  SelectionLimits limits = limits_of(1.0, 0.9, 0.6);
  limits.bins = 8;
  selection = selected(scores, weights, limits);
  CHECK(selection.information_count == 7 && selection.mask.count() == 7);
  CHECK(!selection.mask.test(7) && selection.information_bits < 0.6);
  // The budget wins.
  limits.budget = 0.5;
  selection = selected(scores, weights, limits);
  CHECK(selection.budget_count == 4 && selection.mask.count() == 4 && selection.information_count == 7);
  CHECK(selection.information_bits > 0.6);
}

TEST(selection_of_equal_and_of_zero_scores) {
  const std::vector<double> weights = {1.0, 2.0, 3.0, 4.0, 5.0};
  // Nobody is above the mean, though 0.1 and its sums are rounded; the half is reached by three of five.
  Selection selection = selected(std::vector<double>(5, 0.1), weights, limits_of(1.0, 0.5, kUnbounded));
  CHECK(selection.best_count == 0 && selection.security_count == 3);
  CHECK(selection.mask == Bitset::from_indices(std::vector<std::int64_t>{0, 1, 2}, 5));
  selection = selected(std::vector<double>(5, 0.0), weights, limits_of(1.0, 0.5, kUnbounded));
  CHECK(selection.mask == Bitset(5) && selection.share == 1.0 && selection.security_count == 0);
  selection = selected(std::vector<double>(5, 0.0), weights, limits_of(1.0, 0.5, 0.0));
  CHECK(selection.information_count == 5 && selection.mask == Bitset::full(5));
}

TEST(selection_of_the_largest_scores) {
  const std::vector<double> scores(4, std::numeric_limits<double>::max());
  const Selection selection = selected(scores, scores, limits_of(1.0, 0.25, kUnbounded));
  CHECK(selection.security_count == 3 && selection.share == 0.75);
}

TEST(selection_weighs_cost_against_gain) {
  const std::vector<double> scores = {1.0, 2.0, 3.0, 4.0};
  SelectionLimits limits = limits_of(1.0, 1.0, kUnbounded);
  const auto best = [&](double cost, double gain) {
    limits.cost_weight = cost;
    limits.gain_weight = gain;
    return selected(scores, scores, limits).best_count;
  };
  CHECK(best(1.0, 1.0) == 2);
  // The double nearest to 1.2 is a little less: 3, which is 1.2 times the mean, gains more than it costs.
  CHECK(best(1.2, 1.0) == 2);
  CHECK(best(1.25, 1.0) == 1);
  CHECK(best(4.0, 1.0) == 0);
  CHECK(best(1e-300, 1e300) == 4);
  CHECK(best(1e300, 1e-300) == 0);
}

TEST(selection_does_not_depend_on_threads) {
  std::mt19937_64 generator(63);
  for (const std::vector<double>& scores : score_vectors<double>(200'003, generator)) {
    std::vector<double> weights(scores.size());
    std::normal_distribution<double> normal;
    for (double& weight : weights) weight = normal(generator);
    const SelectionLimits limits = limits_of(0.9, 0.2, 2.0);
    const Selection expected = selected(scores, weights, limits);
    for (const std::size_t threads : {2, 3, 0}) {
      const Selection selection = selected(scores, weights, limits, threads);
      CHECK(selection.mask == expected.mask);
      CHECK(selection.best_count == expected.best_count);
      CHECK(selection.security_count == expected.security_count);
      CHECK(selection.information_count == expected.information_count);
      CHECK(selection.share == expected.share);
      CHECK(selection.information_bits == expected.information_bits);
    }
  }
}

TEST(information_count_is_the_first_that_suffices) {
  std::mt19937_64 generator(64);
  for (const std::vector<double>& scores : score_vectors<double>(400, generator)) {
    std::vector<double> weights(scores.size());
    std::normal_distribution<double> normal;
    for (double& weight : weights) weight = normal(generator);
    const std::vector<std::int64_t> order = ranked(scores);
    for (const std::size_t bins : {1, 2, 50, 65536}) {
      for (const double bits : {0.0, 0.4, 1.7, 5.0}) {
        SelectionLimits limits = limits_of(1.0, 1.0, bits);
        limits.bins = bins;
        const std::uint64_t count = selected(scores, weights, limits).information_count;
        const auto left = [&](std::uint64_t k) {
          return mutual_information(std::span<const double>(weights), first_of<double>(order, k), bins, 1);
        };
        CHECK(left(count) <= bits);
        CHECK(count == 0 || left(count - 1) > bits);
      }
    }
  }
}

TEST(budgets_are_shares_of_the_positions) {
  CHECK(positions_in_budget(0.29, 100) == 29);
  CHECK(positions_in_budget(0.6, 5) == 3);
  CHECK(positions_in_budget(0.59, 5) == 2);
  CHECK(positions_in_budget(1.0, kMaxPositions) == kMaxPositions);
  CHECK(positions_in_budget(1e-12, 100) == 0);
  for (std::uint64_t size = 1; size <= 300; ++size) {
    for (std::uint64_t count = 1; count <= size; ++count) {
      CHECK(positions_in_budget(static_cast<double>(count) / static_cast<double>(size), size) == count);
    }
  }
}

TEST(selection_refuses_bad_input) {
  const std::vector<double> good = {1.0, 2.0};
  const auto refused = [&](auto change) {
    SelectionLimits limits;
    change(limits);
    CHECK_THROWS(selected(good, good, limits), ErrorCode::kParameter);
  };
  const double nan = std::nan("");
  for (const double bad : {0.0, -1.0, nan, kUnbounded}) {
    refused([=](SelectionLimits& limits) { limits.budget = bad; });
    refused([=](SelectionLimits& limits) { limits.exposed_share = bad; });
    refused([=](SelectionLimits& limits) { limits.exposure_decay = bad; });
    refused([=](SelectionLimits& limits) { limits.cost_weight = bad; });
    refused([=](SelectionLimits& limits) { limits.gain_weight = bad; });
  }
  refused([](SelectionLimits& limits) { limits.budget = 1.1; });
  refused([](SelectionLimits& limits) { limits.exposed_share = 4.0; });
  refused([](SelectionLimits& limits) { limits.bins = 0; });
  refused([=](SelectionLimits& limits) { limits.information_bits = nan; });
  refused([](SelectionLimits& limits) { limits.information_bits = -0.1; });
  CHECK_THROWS(selected({}, {}, {}), ErrorCode::kParameter);
  CHECK_THROWS(selected(good, {1.0}, {}), ErrorCode::kParameter);
  CHECK_THROWS(selected(good, good, {}, 100'000), ErrorCode::kParameter);
  for (const double bad : {nan, kUnbounded, -kUnbounded, -1e-320}) {
    CHECK_THROWS(selected({1.0, bad}, good, {}), ErrorCode::kRange);
    const std::vector<double> scores = {1.0, bad};
    CHECK_THROWS(top_k(std::span<const double>(scores), 1), ErrorCode::kRange);
  }
  CHECK_THROWS(selected(good, {1.0, nan}, {}), ErrorCode::kRange);
  CHECK_THROWS(top_k(std::span<const double>(good), 3), ErrorCode::kParameter);
  CHECK(top_k(std::span<const double>(), 0).size() == 0);
}

}  // namespace selection_selection_tests
