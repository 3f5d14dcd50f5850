#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "noise/discrete_gaussian.h"
#include "tests/check.h"
#include "tests/noise/gaussian_statistics.h"

namespace noise_discrete_gaussian_tests {

using namespace shieldfl;
using namespace shieldfl::tests;
using noise::bernoulli_exp_minus_vartime;
using noise::DiscreteGaussian;
using noise::RandomPieces;
using noise::RationalVariance;

namespace {

std::vector<std::int64_t> draw(RationalVariance variance, std::size_t count, std::uint64_t seed) {
  RandomPieces pieces(InsecureTestRandom(seed).next(), 5);
  const DiscreteGaussian gaussian(variance);
  std::vector<std::int64_t> draws(count);
  for (auto& value : draws) value = gaussian.draw_vartime(pieces);
  return draws;
}

// Pearson's test of the integers from -limit to limit; everything beyond counts as one more outcome.
bool has_discrete_gaussian_distribution(const std::vector<std::int64_t>& draws, double variance) {
  constexpr double kLeastExpected = 25.0;
  double total = 0.0;
  for (int y = -2000; y <= 2000; ++y) total += std::exp(-y * y / (2.0 * variance));
  const auto probability = [&](std::int64_t y) {
    return std::exp(-static_cast<double>(y * y) / (2.0 * variance)) / total;
  };
  const auto n = static_cast<double>(draws.size());
  std::int64_t limit = 0;
  while (probability(limit + 1) * n >= kLeastExpected) ++limit;
  std::vector<double> found(static_cast<std::size_t>(2 * limit + 1));
  double outside = 0.0;
  for (const std::int64_t y : draws) {
    if (std::abs(y) > limit) {
      outside += 1.0;
    } else {
      found[static_cast<std::size_t>(y + limit)] += 1.0;
    }
  }
  double statistic = 0.0;
  double inside = 0.0;
  for (std::int64_t y = -limit; y <= limit; ++y) {
    const double expected = probability(y) * n;
    const double difference = found[static_cast<std::size_t>(y + limit)] - expected;
    statistic += difference * difference / expected;
    inside += probability(y);
  }
  const double expected_outside = (1.0 - inside) * n;
  const double log_failure = std::log(2.0 / kFailure);
  return statistic < chi_square_limit(found.size()) &&
         std::fabs(outside - expected_outside) <
             log_failure / 3.0 +
                 std::sqrt(log_failure * log_failure / 9.0 + 2.0 * expected_outside * log_failure);
}

}  // namespace

TEST(exponential_coins_have_their_probability) {
  constexpr std::size_t kTosses = 400'000;
  for (const auto& [numerator, denominator] :
       {std::pair{0, 1}, std::pair{1, 1000}, std::pair{1, 3}, std::pair{1, 1}, std::pair{4, 3},
        std::pair{2, 1}, std::pair{31, 4}}) {
    RandomPieces pieces(InsecureTestRandom(91).next(), 1);
    double heads = 0.0;
    for (std::size_t i = 0; i < kTosses; ++i) {
      heads += bernoulli_exp_minus_vartime(static_cast<ring::UInt128>(numerator),
                                           static_cast<ring::UInt128>(denominator), pieces)
                   ? 1.0
                   : 0.0;
    }
    const double p = std::exp(-static_cast<double>(numerator) / denominator);
    const double expected = p * kTosses;
    CHECK(std::fabs(heads - expected) <= normal_limit() * std::sqrt(expected * (1.0 - p)));
  }
}

TEST(exponential_coins_take_exponents_of_more_than_64_bits) {
  RandomPieces pieces(InsecureTestRandom(92).next(), 1);
  const ring::UInt128 denominator = static_cast<ring::UInt128>(1) << 100;
  double heads = 0.0;
  constexpr std::size_t kTosses = 400'000;
  for (std::size_t i = 0; i < kTosses; ++i) {
    heads += bernoulli_exp_minus_vartime(denominator / 5 * 3, denominator, pieces) ? 1.0 : 0.0;
  }
  const double p = std::exp(-0.6);
  CHECK(std::fabs(heads - p * kTosses) < normal_limit() * std::sqrt(kTosses * p * (1.0 - p)));
}

TEST(small_discrete_gaussians_have_the_exact_probabilities) {
  for (const RationalVariance variance :
       {RationalVariance{1, 5}, RationalVariance{1, 1}, RationalVariance{10, 3}, RationalVariance{100, 7},
        RationalVariance{3 << 20, 1 << 20}, RationalVariance{2500, 1}}) {
    const auto draws = draw(variance, 500'000, 93);
    const double value = static_cast<double>(variance.numerator) / static_cast<double>(variance.denominator);
    CHECK(has_discrete_gaussian_distribution(draws, value));
    CHECK(!has_discrete_gaussian_distribution(draws, value * 1.05));
    auto shifted = draws;
    for (auto& y : shifted) y += 1 + static_cast<std::int64_t>(std::sqrt(value) / 5.0);
    CHECK(!has_discrete_gaussian_distribution(shifted, value));
  }
}

TEST(wide_discrete_gaussians_are_as_good_as_continuous) {
  for (const unsigned log2_deviation : {20U, 23U}) {
    const double deviation = std::ldexp(1.0, static_cast<int>(log2_deviation));
    std::vector<double> standardised;
    for (const auto y : draw({std::uint64_t{1} << (2 * log2_deviation), 1}, 500'000, 94)) {
      standardised.push_back(static_cast<double>(y) / deviation);
    }
    CHECK(has_normal_moments(standardised) && has_normal_distribution(standardised));
    CHECK(has_normal_tail(standardised, 3.0) && has_normal_tail(standardised, 4.0));
    CHECK(is_uncorrelated(standardised, 1));
  }
}

// The same numbers as in tests/privacy/test_discrete_gaussian.py, where a twin in fractions makes them.
TEST(discrete_gaussian_known_answers) {
  const auto first = [](RationalVariance variance, std::size_t count) { return draw(variance, count, 90); };
  CHECK((first({10, 3}, 24) == std::vector<std::int64_t>{-1, 3,  0,  -1, 3, 1,  1,  -1, -4, 5,  -1, 2,
                                                         -1, -1, -1, -1, 2, -1, -1, 1,  1,  -3, 0,  -2}));
  CHECK((first({1, 5}, 12) == std::vector<std::int64_t>{0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0}));
  CHECK((first({(std::uint64_t{1} << 44) + 1, 1}, 6) ==
         std::vector<std::int64_t>{1620176, 6178287, 5410392, 6126491, -2911620, -6126375}));
  CHECK((first({std::uint64_t{1} << 48, (1 << 24) - 1}, 6) ==
         std::vector<std::int64_t>{-2353, 4726, 2974, 7250, -553, 4594}));
}

TEST(variances_at_the_edges_of_their_range_work) {
  CHECK(draw({1, std::uint64_t{1} << 24}, 100, 95) == std::vector<std::int64_t>(100, 0));
  for (const auto y : draw({std::uint64_t{1} << 48, 1}, 1000, 95))
    CHECK(std::abs(y) < 10 * (std::int64_t{1} << 24));
}

TEST(variances_out_of_range_are_refused) {
  for (const RationalVariance variance :
       {RationalVariance{0, 1}, RationalVariance{1, 0}, RationalVariance{(std::uint64_t{1} << 48) + 1, 1},
        RationalVariance{1, (std::uint64_t{1} << 24) + 1}}) {
    CHECK_THROWS(DiscreteGaussian(variance), ErrorCode::kParameter);
  }
}

}  // namespace noise_discrete_gaussian_tests
