#include "ckks/noise_bound.h"

#include <cmath>
#include <numbers>

#include "ring/sampler.h"

namespace shieldfl::ckks {
namespace {

// Of a sub-Gaussian variable with this proxy: 2 exp(-B^2 / (2 V)) = 2^-97.
double tail_bound(double variance_proxy) {
  return std::sqrt(2.0 * variance_proxy * 98.0 * std::numbers::ln2);
}

}  // namespace

double noise_variance_bound(std::size_t degree, std::uint64_t clients) {
  const auto n = static_cast<double>(degree);
  const double fresh_errors = ring::kErrorVariance * (1.0 + kMaxSecretWeightPerDegree * n);  // e0 + e1 s
  const double key_error = 2.0 / 3.0 * kMaxKeyErrorNormPerDegree * n;                        // u e
  return static_cast<double>(clients) * (fresh_errors + key_error);
}

double noise_bound(std::size_t degree, std::uint64_t clients) {
  return tail_bound(noise_variance_bound(degree, clients));
}

double dropping_bound(std::size_t degree, std::uint64_t clients, DroppedBits dropped) {
  const auto k = static_cast<double>(clients);
  const double weight = kMaxSecretWeightPerDegree * static_cast<double>(degree);
  double bound = 0.0;
  // Each client's error is within half of what d bits can hold, and so is K times that for the sum; the
  // correction by the mean is rounded to an integer.
  if (dropped.half0 != 0) bound += k * std::ldexp(1.0, static_cast<int>(dropped.half0) - 1) + 0.5;
  // Times s: |s|_0 errors for each client, each uniform on 2^d integers, of variance below 4^d / 12.
  if (dropped.half1 != 0) {
    bound +=
        tail_bound(k * weight * std::ldexp(1.0, 2 * static_cast<int>(dropped.half1)) / 12.0) + 0.5 * weight;
  }
  return bound;
}

double error_bound(std::size_t degree, std::uint64_t clients, DroppedBits dropped) {
  return noise_bound(degree, clients) + dropping_bound(degree, clients, dropped);
}

}  // namespace shieldfl::ckks
