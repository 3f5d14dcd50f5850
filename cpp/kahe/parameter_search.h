// The shortest ciphertexts that a ring has room for.
#pragma once

#include <cstdint>
#include <optional>

#include "kahe/parameters.h"

namespace shieldfl::kahe {

// -log2 of the probability at most with which a coefficient's error in the sum of `clients` ciphertexts
// reaches half the scale. Errors have variance 21; what is dropped is uniform, of variance (4^d - 1) / 12,
// and the middle that stands for it 1/2 too much, which is taken off again but for 1/2 of an odd number of
// clients. The bound is that of a sub-Gaussian sum, 2 exp(-B^2 / (2 V)) (docs/explanation/kahe-margins.md).
double failure_bits(std::uint64_t clients, unsigned log2_scale, unsigned dropped_bits);

// Parameters keep it above this: among 2^40 coefficients none fails but with probability 2^-64.
inline constexpr double kLeastFailureBits = 104.0;

// Precondition: the request's ranges have been checked, and its sum_bits have been read as the guard bits
// that are omitted. Empty when the ring has no room.
std::optional<ParameterFacts> search_parameters(const ParameterRequest& request,
                                                std::uint8_t omitted_guard_bits, std::uint32_t degree);

}  // namespace shieldfl::kahe
