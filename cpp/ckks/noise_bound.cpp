#include "ckks/noise_bound.h"

#include <cmath>
#include <numbers>

#include "ring/sampler.h"

namespace shieldfl::ckks {

double noise_variance_bound(std::size_t degree, std::uint64_t clients) {
  const auto n = static_cast<double>(degree);
  const double fresh_errors = ring::kErrorVariance * (1.0 + kMaxSecretWeightPerDegree * n);  // e0 + e1 s
  const double key_error = 2.0 / 3.0 * kMaxKeyErrorNormPerDegree * n;                        // u e
  return static_cast<double>(clients) * (fresh_errors + key_error);
}

double noise_bound(std::size_t degree, std::uint64_t clients) {
  // 2 exp(-B^2 / (2 V)) = 2^-96
  const double exponent = 97.0 * std::numbers::ln2;
  return std::sqrt(2.0 * noise_variance_bound(degree, clients) * exponent);
}

}  // namespace shieldfl::ckks
