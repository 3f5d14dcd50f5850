#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "mask/bitset.h"
#include "selection/mutual_information.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace selection_mutual_information_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using namespace shieldfl::selection;

namespace {

double information(const std::vector<double>& weights, const tests::Bools& masked, std::size_t bins) {
  return mutual_information(std::span<const double>(weights), Bitset::from_bools(masked), bins, 1);
}

bool near(double left, double right) {
  return std::abs(left - right) < 1e-12;
}

std::vector<double> random_weights(std::size_t size, std::mt19937_64& generator) {
  std::normal_distribution<double> weight(0.1, 1.0);
  std::vector<double> weights(size);
  for (double& value : weights) value = weight(generator);
  return weights;
}

// Eq. 3 term by term from a table of (bin of W, bin of masked W).
double by_definition(const std::vector<std::size_t>& bins, const std::vector<std::size_t>& masked_bins,
                     std::size_t count) {
  std::vector<double> joint(count * count);
  std::vector<double> own(count);
  std::vector<double> seen(count);
  const double share = 1.0 / static_cast<double>(bins.size());
  for (std::size_t i = 0; i < bins.size(); ++i) {
    joint[bins[i] * count + masked_bins[i]] += share;
    own[bins[i]] += share;
    seen[masked_bins[i]] += share;
  }
  double bits = 0.0;
  for (std::size_t x = 0; x < count; ++x) {
    for (std::size_t y = 0; y < count; ++y) {
      const double p = joint[x * count + y];
      if (p > 0.0) bits += p * std::log2(p / (own[x] * seen[y]));
    }
  }
  return bits;
}

}  // namespace

TEST(information_of_known_cases) {
  const std::vector<double> four = {0.0, 1.0, 2.0, 3.0};
  CHECK(near(information(four, {0, 0, 0, 0}, 4), 2.0));
  CHECK(information(four, {1, 1, 1, 1}, 4) == 0.0);
  // Masking the only weight of the bin of 0 changes nothing; one more weight makes one bit of two positions.
  CHECK(near(information(four, {1, 0, 0, 0}, 4), 2.0));
  CHECK(near(information(four, {0, 1, 0, 0}, 4), 1.5));
  // Two bins: those of 0 and 1 fall into the first one.
  CHECK(near(information(four, {0, 0, 0, 0}, 2), 1.0));
  CHECK(information(four, {0, 0, 0, 0}, 1) == 0.0);
  // 0 is outside of the weights' range, which is extended: masked weights have a bin of their own.
  CHECK(near(information({3.0, 4.0}, {0, 0}, 4), 0.0));
  CHECK(near(information({1.0, 4.0}, {1, 0}, 4), 1.0));
  CHECK(near(information({-1.0, -4.0}, {0, 0}, 4), 1.0));
  CHECK(information({0.0, 0.0, 0.0}, {0, 1, 0}, 256) == 0.0);
}

TEST(information_is_its_definition) {
  std::mt19937_64 generator(51);
  for (const std::size_t bins : {2, 3, 16, 100}) {
    for (const double density : tests::kDensities) {
      const std::vector<double> weights = random_weights(500, generator);
      const tests::Bools masked = tests::random_bools(weights.size(), density, generator);
      const WeightHistogram<double> histogram(weights, bins, 1);
      std::vector<std::size_t> own(weights.size());
      std::vector<double> and_zero = weights;
      and_zero.push_back(0.0);
      const WeightHistogram<double> extended(and_zero, bins, 1);
      std::vector<std::size_t> seen(weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        own[i] = histogram.bin_at(i);
        seen[i] = masked[i] != 0 ? extended.bin_at(weights.size()) : own[i];
      }
      CHECK(near(information(weights, masked, bins), by_definition(own, seen, bins)));
    }
  }
}

TEST(information_never_rises_with_the_mask) {
  std::mt19937_64 generator(52);
  const std::vector<double> weights = random_weights(300, generator);
  tests::Bools masked(weights.size());
  double before = information(weights, masked, 16);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    masked[(i * 7) % weights.size()] = 1;
    const double now = information(weights, masked, 16);
    CHECK(now <= before + 1e-14);
    before = now;
  }
  CHECK(before == 0.0);
}

TEST(information_of_extreme_ranges) {
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  CHECK(near(information({-kMost, 0.0, kMost, 0.1}, {0, 0, 0, 0}, 3), 1.5));
  CHECK(near(information({0.0, kLeast}, {0, 0}, 2), 1.0));
  CHECK(near(information({-kLeast, kLeast}, {0, 0}, 65536), 1.0));
  const std::vector<float> floats = {-std::numeric_limits<float>::max(), std::numeric_limits<float>::max()};
  CHECK(near(mutual_information(std::span<const float>(floats), Bitset(2), 256), 1.0));
}

TEST(information_does_not_depend_on_threads) {
  std::mt19937_64 generator(53);
  const std::vector<double> weights = random_weights(400'003, generator);
  const Bitset mask = tests::random_half(weights.size(), generator);
  const std::span<const double> view(weights);
  const double expected = mutual_information(view, mask, 256, 1);
  for (const std::size_t threads : {2, 3, 7, 0}) {
    CHECK(mutual_information(view, mask, 256, threads) == expected);
  }
}

TEST(information_refuses_bad_input) {
  const std::vector<double> weights = {1.0, 2.0};
  CHECK_THROWS(information(weights, {0, 0, 0}, 2), ErrorCode::kParameter);
  CHECK_THROWS(information({}, {}, 2), ErrorCode::kParameter);
  CHECK_THROWS(information(weights, {0, 0}, 0), ErrorCode::kParameter);
  CHECK_THROWS(information(weights, {0, 0}, kMostBins + 1), ErrorCode::kParameter);
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    CHECK_THROWS(information({1.0, bad}, {0, 0}, 2), ErrorCode::kRange);
  }
}

}  // namespace selection_mutual_information_tests
