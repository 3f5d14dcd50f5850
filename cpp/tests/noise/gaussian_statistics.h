// Whether draws look like N(0, 1). Each test rejects honest draws with probability 1e-9 or a few times that:
// see statistics.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "tests/statistics.h"

namespace shieldfl::tests {

inline bool has_normal_moments(const std::vector<double>& draws) {
  double first = 0.0;
  double second = 0.0;
  double third = 0.0;
  double fourth = 0.0;
  for (const double x : draws) {
    first += x;
    second += x * x;
    third += x * x * x;
    fourth += x * x * x * x;
  }
  // The k-th power of a standard normal has variance 1, 2, 15 and 96.
  const double root_n = std::sqrt(static_cast<double>(draws.size()));
  return std::fabs(first / root_n) < normal_limit() &&
         std::fabs((second - root_n * root_n) / (root_n * std::sqrt(2.0))) < normal_limit() &&
         std::fabs(third / (root_n * std::sqrt(15.0))) < normal_limit() &&
         std::fabs((fourth - 3.0 * root_n * root_n) / (root_n * std::sqrt(96.0))) < normal_limit();
}

// Kolmogorov and Smirnov's test.
inline bool has_normal_distribution(std::vector<double> draws) {
  std::sort(draws.begin(), draws.end());
  const auto n = static_cast<double>(draws.size());
  double distance = 0.0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const double cdf = 0.5 * std::erfc(-draws[i] / std::numbers::sqrt2);
    distance = std::max({distance, cdf - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - cdf});
  }
  return distance < kolmogorov_limit(draws.size());
}

// The number of draws beyond `limit` on either side, by Bernstein's inequality.
inline bool has_normal_tail(const std::vector<double>& draws, double limit) {
  const double expected = std::erfc(limit / std::numbers::sqrt2) * static_cast<double>(draws.size());
  const auto found = static_cast<double>(
      std::count_if(draws.begin(), draws.end(), [&](double x) { return std::fabs(x) > limit; }));
  const double log_failure = std::log(2.0 / kFailure);
  return std::fabs(found - expected) <
         log_failure / 3.0 + std::sqrt(log_failure * log_failure / 9.0 + 2.0 * expected * log_failure);
}

// Draws that are `lag` apart have uncorrelated values and uncorrelated squares.
inline bool is_uncorrelated(const std::vector<double>& draws, std::size_t lag) {
  double products = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i + lag < draws.size(); ++i) {
    const double x = draws[i];
    const double y = draws[i + lag];
    products += x * y;
    squares += (x * x - 1.0) * (y * y - 1.0);
  }
  const double root_n = std::sqrt(static_cast<double>(draws.size() - lag));
  return std::fabs(products / root_n) < normal_limit() &&
         std::fabs(squares / (2.0 * root_n)) < normal_limit();
}

}  // namespace shieldfl::tests
