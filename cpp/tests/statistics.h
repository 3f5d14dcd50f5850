// Limits for statistical tests. Each is exceeded by honest random data with probability kFailure at most, by
// an inequality that is named; streams in tests have fixed seeds, so a test that passes once goes on passing.
#pragma once

#include <cmath>
#include <cstddef>

namespace shieldfl::tests {

inline constexpr double kFailure = 1e-9;

// For |Z|, Z standard normal: P(|Z| > z) <= 2 exp(-z^2 / 2).
inline double normal_limit() {
  return std::sqrt(2.0 * std::log(2.0 / kFailure));
}

// For Pearson's statistic: P(X > k + 2 sqrt(k x) + 2 x) <= exp(-x) for k degrees of freedom (Laurent and
// Massart, 2000).
inline double chi_square_limit(std::size_t degrees_of_freedom) {
  const auto k = static_cast<double>(degrees_of_freedom);
  const double x = -std::log(kFailure);
  return k + 2.0 * std::sqrt(k * x) + 2.0 * x;
}

// For the largest distance between an empirical distribution function and the true one: P(D > d) <=
// 2 exp(-2 n d^2) (Dvoretzky, Kiefer, Wolfowitz; Massart, 1990).
inline double kolmogorov_limit(std::size_t draws) {
  return std::sqrt(std::log(2.0 / kFailure) / (2.0 * static_cast<double>(draws)));
}

}  // namespace shieldfl::tests
