// Finds the smallest ring that has room for what is asked.
#pragma once

#include <cstdint>
#include <optional>

#include "ckks/parameters.h"

namespace shieldfl::ckks {

// Below it, primes that are 1 modulo 2N run out.
inline constexpr int kMinPrimeBits = 20;
// Fewer than the bits of any prime, so that something of each coefficient travels.
inline constexpr unsigned kMaxDroppedBits = 16;
// Lazy NTT arithmetic in 52-bit lanes wants four times the prime to fit.
inline constexpr int kMaxPrimeBits = 50;

// One value more per coefficient is always the better use of room: the scale above the noise is paid once.
// Precondition: the request's ranges have been checked. Empty when no ring has room.
std::optional<ParameterFacts> search_parameters(const ParameterRequest& request);

}  // namespace shieldfl::ckks
