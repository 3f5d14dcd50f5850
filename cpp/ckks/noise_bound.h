// How large the noise of a sum of ciphertexts can get. docs/packings.md derives the formulas.
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

// A variance proxy (sub-Gaussian) of each noise coefficient in the sum of `clients` fresh ciphertexts:
// clients * (10.5 (1 + |s|_0) + (2/3) |e|^2), with |s|_0 and |e|^2 at the limits above.
double noise_variance_bound(std::size_t degree, std::uint64_t clients);

// A bound B on |noise| that a coefficient exceeds with probability at most 2^-96; among 2^32 coefficients
// (49 GB of ciphertext at the default parameters) none exceeds it but with probability 2^-64.
double noise_bound(std::size_t degree, std::uint64_t clients);

}  // namespace shieldfl::ckks
