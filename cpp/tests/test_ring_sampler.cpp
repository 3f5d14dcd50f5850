#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ring/sampler.h"
#include "tests/check.h"
#include "tests/statistics.h"

using namespace shieldfl;
using namespace shieldfl::ring;
using tests::chi_square_limit;
using tests::normal_limit;

namespace {

constexpr std::size_t kDraws = 3'000'001;  // no multiple of what one step gives
using Sampler = void (*)(RandomStream&, std::span<std::int8_t>);

std::vector<std::int8_t> draw(Sampler sampler, std::uint64_t seed, std::size_t count) {
  RandomStream stream(InsecureTestRandom(seed).next(), 5);
  std::vector<std::int8_t> samples(count);
  sampler(stream, samples);
  return samples;
}

// P(X = x) for -21 <= x <= 21, at index x + 21: the coefficients of (1 + t)^42 / 2^42, exact in double.
std::array<double, 2 * kErrorCoins + 1> error_probabilities() {
  std::array<double, 2 * kErrorCoins + 1> probabilities{};
  double coefficient = 1.0;
  for (std::size_t k = 0; k < probabilities.size(); ++k) {
    probabilities[k] = std::ldexp(coefficient, -2 * kErrorCoins);
    coefficient = coefficient * static_cast<double>(2 * kErrorCoins - k) / static_cast<double>(k + 1);
  }
  return probabilities;
}

double pearson(const std::vector<double>& observed, const std::vector<double>& expected) {
  double statistic = 0.0;
  for (std::size_t i = 0; i < observed.size(); ++i) {
    statistic += (observed[i] - expected[i]) * (observed[i] - expected[i]) / expected[i];
  }
  return statistic;
}

// The mean of x_i x_(i + lag) in standard errors; both factors have the given variance.
double correlation_z(const std::vector<std::int8_t>& samples, std::size_t lag, double variance) {
  double sum = 0.0;
  for (std::size_t i = 0; i + lag < samples.size(); ++i) sum += double{1} * samples[i] * samples[i + lag];
  return sum / (variance * std::sqrt(static_cast<double>(samples.size() - lag)));
}

}  // namespace

TEST(errors_have_the_moments_of_the_binomial) {
  const auto samples = draw(sample_error, 51, kDraws);
  const auto probabilities = error_probabilities();
  double second = 0.0;
  double fourth = 0.0;
  for (int x = -kErrorCoins; x <= kErrorCoins; ++x) {
    const double p = probabilities[static_cast<std::size_t>(x + kErrorCoins)];
    second += p * x * x;
    fourth += p * x * x * x * x;
  }
  CHECK(std::fabs(second - kErrorVariance) < 1e-12);
  double sum = 0.0;
  double squares = 0.0;
  for (const std::int8_t x : samples) {
    CHECK(x >= -kErrorCoins && x <= kErrorCoins);
    sum += x;
    squares += double{1} * x * x;
  }
  const auto n = static_cast<double>(samples.size());
  CHECK(std::fabs(sum / std::sqrt(n * second)) < normal_limit());
  CHECK(std::fabs((squares - n * second) / std::sqrt(n * (fourth - second * second))) < normal_limit());
}

TEST(errors_have_the_distribution_of_the_binomial) {
  const auto samples = draw(sample_error, 52, kDraws);
  const auto probabilities = error_probabilities();
  std::array<double, 2 * kErrorCoins + 1> counts{};
  for (const std::int8_t x : samples) counts[static_cast<std::size_t>(x + kErrorCoins)] += 1.0;
  // Tails with fewer than ten expected are put together, which Pearson's approximation asks for.
  std::vector<double> observed(1, 0.0);
  std::vector<double> expected(1, 0.0);
  double left = 1.0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    observed.back() += counts[k];
    expected.back() += probabilities[k] * static_cast<double>(kDraws);
    left -= probabilities[k];
    if (expected.back() >= 10.0 && left * static_cast<double>(kDraws) >= 10.0) {
      observed.push_back(0.0);
      expected.push_back(0.0);
    }
  }
  CHECK(observed.size() > 25);
  CHECK(pearson(observed, expected) < chi_square_limit(observed.size() - 1));
}

TEST(ternary_samples_are_uniform) {
  const auto samples = draw(sample_ternary, 53, kDraws);
  std::vector<double> observed(3, 0.0);
  std::vector<double> pairs(9, 0.0);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    CHECK(samples[i] >= -1 && samples[i] <= 1);
    observed[static_cast<std::size_t>(samples[i] + 1)] += 1.0;
    if (i % 2 == 1) pairs[static_cast<std::size_t>(3 * (samples[i - 1] + 1) + samples[i] + 1)] += 1.0;
  }
  const auto n = static_cast<double>(kDraws);
  CHECK(pearson(observed, std::vector<double>(3, n / 3.0)) < chi_square_limit(2));
  CHECK(pearson(pairs, std::vector<double>(9, std::floor(n / 2.0) / 9.0)) < chi_square_limit(8));
}

TEST(samples_are_uncorrelated) {
  const auto errors = draw(sample_error, 54, kDraws);
  const auto ternary = draw(sample_ternary, 55, kDraws);
  for (const std::size_t lag : {1, 2, 7, 8, 9, 16, 23, 24, 48, 64, 2048}) {
    CHECK(std::fabs(correlation_z(errors, lag, kErrorVariance)) < normal_limit());
    CHECK(std::fabs(correlation_z(ternary, lag, 2.0 / 3.0)) < normal_limit());
  }
}

TEST(errors_follow_the_documented_order_of_bits) {
  const std::size_t count = 24 * 50;
  RandomStream stream(InsecureTestRandom(56).next(), 5);
  std::vector<int> expected;
  while (expected.size() < count) {
    std::array<std::uint64_t, 16> w{};
    for (std::uint64_t& word : w) word = stream.next_u64();
    for (unsigned j = 0; j < 3; ++j) {
      for (std::size_t i = 0; i < 8; ++i) {
        int sample = 0;
        for (unsigned bit = 21 * j; bit <= 21 * j + 20; ++bit) {
          sample += static_cast<int>((w[i] >> bit) & 1) - static_cast<int>((w[8 + i] >> bit) & 1);
        }
        expected.push_back(sample);
      }
    }
  }
  const auto samples = draw(sample_error, 56, count);
  for (std::size_t i = 0; i < count; ++i) CHECK(samples[i] == expected[i]);
}

TEST(ternary_samples_follow_the_documented_order_of_bits) {
  const std::size_t count = 1000;
  RandomStream stream(InsecureTestRandom(57).next(), 5);
  std::vector<int> expected;
  while (expected.size() < count) {
    const std::uint64_t a = stream.next_u64();
    const std::uint64_t b = stream.next_u64();
    for (unsigned i = 0; i < 64; ++i) {
      const bool a_bit = ((a >> i) & 1) != 0;
      const bool b_bit = ((b >> i) & 1) != 0;
      if (!(a_bit && b_bit)) expected.push_back(a_bit ? 1 : b_bit ? -1 : 0);
    }
  }
  const auto samples = draw(sample_ternary, 57, count);
  for (std::size_t i = 0; i < count; ++i) CHECK(samples[i] == expected[i]);
}

TEST(a_shorter_sample_is_the_beginning_of_a_longer_one) {
  for (const Sampler sampler : {sample_error, sample_ternary}) {
    const auto longer = draw(sampler, 58, 500);
    for (std::size_t count = 0; count <= longer.size(); ++count) {
      const auto shorter = draw(sampler, 58, count);
      CHECK(std::equal(shorter.begin(), shorter.end(), longer.begin()));
    }
  }
}
