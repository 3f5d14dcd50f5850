#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "noise/grid_noise.h"
#include "ring/modulus.h"
#include "tests/check.h"
#include "tests/noise/gaussian_statistics.h"

namespace noise_grid_tests {

using namespace shieldfl;
using noise::clip_and_add_discrete_gaussian_vartime;
using noise::RationalVariance;

namespace {

// So narrow that every draw is 0: P(not 0) = 2 exp(-2^23).
constexpr RationalVariance kNoNoise = {1, std::uint64_t{1} << 24};

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

struct Noised {
  std::vector<double> values;
  noise::Clipping clipping;
};

Noised noised(const std::vector<float>& values, double norm, unsigned fraction_bits,
              RationalVariance variance, std::size_t threads) {
  InsecureTestRandom seeds(96);
  std::vector<double> out(values.size());
  const auto clipping =
      clip_and_add_discrete_gaussian_vartime(values, out, norm, fraction_bits, variance, seeds, threads);
  return {out, clipping};
}

}  // namespace

TEST(rounded_vectors_are_never_longer_than_the_bound) {
  for (const std::size_t count : {1, 7, 1000, 20'000}) {
    auto values = random_values(count, count);
    const double length = noised(values, 1e6, 20, kNoNoise, 1).clipping.original_norm;
    for (const unsigned fraction_bits : {8U, 12U, 20U, 30U}) {
      const double least =
          std::sqrt(static_cast<double>(count)) * std::ldexp(1.0, -static_cast<int>(fraction_bits));
      // Norms just above and below the vector's own are where rounding would break the bound.
      for (const double norm :
           {0.01, 1.0, length * (1.0 - 1e-9), length, length * (1.0 + 1e-9), length * 2.0}) {
        if (norm < least) continue;
        const auto result = noised(values, norm, fraction_bits, kNoNoise, 2);
        ring::UInt128 squares = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const double steps = std::ldexp(result.values[i], static_cast<int>(fraction_bits));
          CHECK(steps == std::nearbyint(steps));
          CHECK(std::fabs(result.values[i] - values[i] * result.clipping.factor) <=
                std::ldexp(0.5, -static_cast<int>(fraction_bits)) * (1.0 + 1e-12));
          squares +=
              static_cast<ring::UInt128>(std::fabs(steps)) * static_cast<ring::UInt128>(std::fabs(steps));
        }
        const long double bound = std::ldexp(static_cast<long double>(norm), static_cast<int>(fraction_bits));
        CHECK(static_cast<long double>(squares) <= bound * bound);
      }
    }
  }
}

TEST(values_are_rounded_to_nearest_ties_to_even) {
  const std::vector<float> values = {0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 0.49F, 0.51F, -3.0F};
  const auto result = noised(values, 100.0, 0, kNoNoise, 1);
  CHECK(!result.clipping.was_clipped());
  CHECK((result.values == std::vector<double>{0.0, 2.0, 2.0, 0.0, -2.0, 0.0, 1.0, -3.0}));
}

TEST(grid_noise_has_the_stated_deviation) {
  const std::vector<float> values(300'000, 0.25F);
  const auto result = noised(values, 1e6, 16, {std::uint64_t{1} << 30, 1}, 2);
  std::vector<double> standardised;
  for (const double value : result.values) {
    CHECK(std::ldexp(value, 16) == std::nearbyint(std::ldexp(value, 16)));
    standardised.push_back((value - 0.25) * 2.0);
  }
  CHECK(tests::has_normal_moments(standardised) && tests::has_normal_distribution(standardised));
  CHECK(tests::is_uncorrelated(standardised, 4096));
}

TEST(grid_noise_does_not_depend_on_threads) {
  for (const std::size_t count : {1, 4095, 4096, 4097, 30'001}) {
    const auto values = random_values(count, 3);
    const auto expected = noised(values, 2.0, 20, {12345, 7}, 1);
    for (const std::size_t threads : {0, 2, 5}) {
      const auto result = noised(values, 2.0, 20, {12345, 7}, threads);
      CHECK(result.values == expected.values);
      CHECK(result.clipping.original_norm == expected.clipping.original_norm);
    }
  }
}

TEST(empty_vectors_get_no_grid_noise) {
  CHECK(noised({}, 1.0, 10, {1, 1}, 2).values.empty());
}

TEST(grids_that_do_not_fit_the_norm_are_refused) {
  const std::vector<float> values(10'000, 1.0F);
  CHECK_THROWS(noised(values, 1.0, 6, {1, 1}, 1), ErrorCode::kParameter);  // 50 half steps of 1/64
  CHECK(noised(values, 1.0, 7, {1, 1}, 1).clipping.was_clipped());
  CHECK_THROWS(noised(values, 1.0, 51, {1, 1}, 1), ErrorCode::kParameter);
  CHECK_THROWS(noised(values, 1e-40, 151, {1, 1}, 1), ErrorCode::kParameter);
  for (const double norm : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS(noised(values, norm, 20, {1, 1}, 1), ErrorCode::kParameter);
  }
  CHECK_THROWS(noised(values, 1.0, 20, {0, 1}, 1), ErrorCode::kParameter);
  CHECK_THROWS(noised({1.0F, std::numeric_limits<float>::infinity()}, 1.0, 20, {1, 1}, 1), ErrorCode::kRange);
}

}  // namespace noise_grid_tests
