#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "noise/gaussian.h"
#include "tests/check.h"
#include "tests/noise/gaussian_statistics.h"

namespace noise_gaussian_tests {

using namespace shieldfl;
using noise::add_gaussian;
using namespace shieldfl::tests;

namespace {

constexpr std::size_t kDraws = 1'000'003;

std::vector<float> draw(std::uint64_t seed, std::size_t count, double deviation, std::size_t threads) {
  InsecureTestRandom seeds(seed);
  std::vector<float> values(count, 0.0F);
  add_gaussian(values, deviation, seeds, threads);
  return values;
}

std::vector<double> standardised(std::uint64_t seed, std::size_t count, double deviation) {
  std::vector<double> draws;
  for (const float value : draw(seed, count, deviation, 2)) draws.push_back(value / deviation);
  return draws;
}

}  // namespace

TEST(gaussian_noise_has_the_moments_it_should) {
  for (const double deviation : {1.0, 0.003, 250.0})
    CHECK(has_normal_moments(standardised(71, kDraws, deviation)));
}

TEST(gaussian_noise_has_the_normal_distribution) {
  CHECK(has_normal_distribution(standardised(72, kDraws, 0.5)));
}

TEST(gaussian_noise_has_normal_tails) {
  const auto draws = standardised(79, 10'000'000, 3.0);
  for (const double limit : {1.0, 2.0, 3.0, 4.0, 4.5, 5.0}) CHECK(has_normal_tail(draws, limit));
}

TEST(draws_that_share_random_words_are_uncorrelated) {
  // The draws of a pair are 32 apart, and pairs that share the word of their angles 8, 16 or 24.
  const auto draws = standardised(73, kDraws, 1.0);
  for (const std::size_t lag : {1, 2, 8, 16, 24, 32, 40, 64, 4095, 4096}) {
    CHECK(is_uncorrelated(draws, lag));
  }
}

TEST(the_statistics_reject_what_is_not_normal) {
  const auto draws = standardised(80, kDraws, 1.0);
  auto wide = draws;
  for (double& x : wide) x *= 1.02;
  CHECK(!has_normal_moments(wide) && !has_normal_distribution(wide));
  auto shifted = draws;
  for (double& x : shifted) x += 0.01;
  CHECK(!has_normal_moments(shifted) && !has_normal_distribution(shifted));
  // Tails cut at 4.5 deviations, which moments do not see.
  auto cut = standardised(81, 10'000'000, 1.0);
  for (double& x : cut) x = std::clamp(x, -4.5, 4.5);
  CHECK(has_normal_moments(cut) && !has_normal_tail(cut, 4.5));
  // One radius for two pairs: every draw is normal, and neighbours have correlated squares.
  auto paired = draws;
  for (std::size_t i = 0; i + 1 < paired.size(); i += 2)
    paired[i + 1] = std::copysign(paired[i], draws[i + 1]);
  CHECK(has_normal_moments(paired) && !is_uncorrelated(paired, 1));
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

TEST(one_call_clips_and_adds_what_two_calls_do) {
  std::vector<float> values(10'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3.0F;
  const auto expected_noise = draw(82, values.size(), 0.25, 1);
  for (const std::size_t threads : {1, 2, 5}) {
    for (const double norm : {1.5, 1e6}) {
      InsecureTestRandom seeds(82);
      std::vector<float> noised(values.size());
      const auto clipping = noise::clip_and_add_gaussian(values, noised, norm, 0.25, seeds, threads);
      CHECK(clipping.was_clipped() == (norm < 1e6));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double expected = values[i] * clipping.factor + static_cast<double>(expected_noise[i]);
        CHECK(std::fabs(noised[i] - expected) < 1e-6);
      }
      InsecureTestRandom same_seeds(82);
      std::vector<float> in_place = values;
      noise::clip_and_add_gaussian(in_place, in_place, norm, 0.25, same_seeds, 1);
      CHECK(in_place == noised);
    }
  }
}

TEST(a_refused_vector_gets_no_noise) {
  InsecureTestRandom seeds(83);
  std::vector<float> values(9'000, 1.0F);
  values[8'500] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> noised(values.size(), 7.0F);
  CHECK_THROWS(noise::clip_and_add_gaussian(values, noised, 1.0, 1.0, seeds, 2), ErrorCode::kRange);
  CHECK_THROWS(noise::clip_and_add_gaussian(values, noised, 1.0, -1.0, seeds, 2), ErrorCode::kParameter);
  CHECK_THROWS(noise::clip_and_add_gaussian(values, noised, 0.0, 1.0, seeds, 2), ErrorCode::kParameter);
  CHECK(noised == std::vector<float>(values.size(), 7.0F));
}

}  // namespace noise_gaussian_tests
