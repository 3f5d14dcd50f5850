// How large the error of a sum of ciphertexts can get. docs/reference/packings-reference.md derives the
// formulas.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl::ckks {

// What key generation checks, so that the bounds below hold for every key, not for a typical one.
// A uniform ternary secret has 2N/3 non-zero coefficients on average; this is exceeded with probability
// below 2^-100 at N = 2048.
inline constexpr double kMaxSecretWeightPerDegree = 0.8;
// |e|^2 <= 1.35 * 10.5 * N for the public key's error e, exceeded with probability below 2^-64 at N = 2048.
inline constexpr double kMaxKeyErrorNormPerDegree = 1.35 * 10.5;

// How many of the lowest bits of each coefficient of the two halves of a batch do not travel.
struct DroppedBits {
  unsigned half0 = 0;
  unsigned half1 = 0;

  bool operator==(const DroppedBits&) const = default;
};

// A variance proxy (sub-Gaussian) of each noise coefficient in the sum of `clients` fresh ciphertexts:
// clients * (10.5 (1 + |s|_0) + (2/3) |e|^2), with |s|_0 and |e|^2 at the limits above.
double noise_variance_bound(std::size_t degree, std::uint64_t clients);

// A bound B on |noise| that a coefficient exceeds with probability at most 2^-97.
double noise_bound(std::size_t degree, std::uint64_t clients);

// A bound on what dropping bits does to a coefficient of the opened sum, exceeded with probability at most
// 2^-97; 0 where nothing is dropped.
double dropping_bound(std::size_t degree, std::uint64_t clients, DroppedBits dropped);

// Both: exceeded with probability at most 2^-96, dropped bits being taken for uniform. That they are not
// quite multiplies it by less than 1.002 for up to 1,000 clients, and by less than 1.5 in any case
// (docs/reference/packings-reference.md). Among 2^32 coefficients none exceeds it but with probability 2^-64.
double error_bound(std::size_t degree, std::uint64_t clients, DroppedBits dropped);

}  // namespace shieldfl::ckks
