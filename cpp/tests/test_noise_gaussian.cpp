#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "noise/gaussian.h"
#include "tests/check.h"
#include "tests/statistics.h"

using namespace shieldfl;
using noise::add_gaussian;
using tests::kolmogorov_limit;
using tests::normal_limit;

namespace {

constexpr std::size_t kDraws = 1'000'003;

std::vector<float> draw(std::uint64_t seed, std::size_t count, double deviation, std::size_t threads) {
  InsecureTestRandom seeds(seed);
  std::vector<float> values(count, 0.0F);
  add_gaussian(values, deviation, seeds, threads);
  return values;
}

}  // namespace

TEST(gaussian_noise_has_the_moments_it_should) {
  for (const double deviation : {1.0, 0.003, 250.0}) {
    double first = 0.0;
    double second = 0.0;
    double third = 0.0;
    double fourth = 0.0;
    for (const float value : draw(71, kDraws, deviation, 2)) {
      const double x = value / deviation;
      first += x;
      second += x * x;
      third += x * x * x;
      fourth += x * x * x * x;
    }
    // The k-th power of a standard normal has variance 1, 2, 15 and 96.
    const double root_n = std::sqrt(static_cast<double>(kDraws));
    CHECK(std::fabs(first / root_n) < normal_limit());
    CHECK(std::fabs((second - root_n * root_n) / (root_n * std::sqrt(2.0))) < normal_limit());
    CHECK(std::fabs(third / (root_n * std::sqrt(15.0))) < normal_limit());
    CHECK(std::fabs((fourth - 3.0 * root_n * root_n) / (root_n * std::sqrt(96.0))) < normal_limit());
  }
}

TEST(gaussian_noise_has_the_normal_distribution) {
  const double deviation = 0.5;
  auto values = draw(72, kDraws, deviation, 2);
  std::sort(values.begin(), values.end());
  double distance = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double cdf = 0.5 * std::erfc(-values[i] / (deviation * std::numbers::sqrt2));
    const auto n = static_cast<double>(values.size());
    distance = std::max({distance, cdf - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - cdf});
  }
  CHECK(distance < kolmogorov_limit(kDraws));
}

TEST(the_two_draws_of_a_pair_are_uncorrelated) {
  const auto values = draw(73, kDraws, 1.0, 1);
  for (const std::size_t lag : {1, 2, 4095, 4096}) {
    double products = 0.0;
    double squares = 0.0;  // of the two amplitudes: independent pairs have none of this either
    for (std::size_t i = 0; i + lag < values.size(); ++i) {
      const double x = values[i];
      const double y = values[i + lag];
      products += x * y;
      squares += (x * x - 1.0) * (y * y - 1.0);
    }
    const double root_n = std::sqrt(static_cast<double>(values.size() - lag));
    CHECK(std::fabs(products / root_n) < normal_limit());
    CHECK(std::fabs(squares / (2.0 * root_n)) < normal_limit());
  }
}

TEST(gaussian_noise_does_not_depend_on_threads) {
  for (const std::size_t count : {1, 2, 3, 4095, 4096, 4097, 50'001}) {
    const auto expected = draw(74, count, 1.5, 1);
    for (const std::size_t threads : {0, 2, 3, 7}) CHECK(draw(74, count, 1.5, threads) == expected);
  }
  CHECK(draw(74, 100, 1.5, 1) != draw(75, 100, 1.5, 1));
}

TEST(gaussian_noise_is_added_to_what_is_there) {
  const auto noise = draw(76, 5000, 2.0, 1);
  InsecureTestRandom seeds(76);
  std::vector<float> values(noise.size(), 10.0F);
  add_gaussian(values, 2.0, seeds, 1);
  // The sum is formed in double and rounded once, which the noise alone was too: half a unit of each.
  for (std::size_t i = 0; i < noise.size(); ++i) CHECK(std::fabs(values[i] - (10.0F + noise[i])) < 2e-6F);
}

TEST(no_noise_leaves_values_alone_and_draws_nothing) {
  InsecureTestRandom seeds(77);
  std::vector<float> values = {1.0F, -0.0F, std::numeric_limits<float>::denorm_min(), 3.5F};
  const std::vector<float> before = values;
  add_gaussian(values, 0.0, seeds, 1);
  CHECK(values == before && std::signbit(values[1]));
  CHECK(seeds.next().bytes == InsecureTestRandom(77).next().bytes);
  std::vector<float> none;
  add_gaussian(none, 1.0, seeds, 2);
}

TEST(gaussian_noise_refuses_a_bad_deviation_and_number_of_threads) {
  InsecureTestRandom seeds(78);
  std::vector<float> values(10, 1.0F);
  for (const double deviation :
       {-1.0, -1e-300, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS((add_gaussian(values, deviation, seeds, 1), 0), ErrorCode::kParameter);
  }
  CHECK_THROWS((add_gaussian(values, 1.0, seeds, 100'000), 0), ErrorCode::kParameter);
  CHECK(values == std::vector<float>(10, 1.0F));
}
