// Whether the factors of a key are fit for it, without telling anything else of them.
#pragma once

#include <cstdint>
#include <span>

#include "paillier/engine.h"

namespace shieldfl::paillier {

// Whether the number whose square is the engine's modulus is prime, by Miller and Rabin's test to 56 random
// bases: wrong for a composite with probability 2^-112 at most, never for a prime. Constant-time but for the
// verdict and for how often 2 divides number - 1. `top_zeros`: how many of the number's top bits are zero,
// below 31, which is public.
bool is_prime_secret(const Engine& engine, std::span<const std::uint64_t> number, unsigned top_zeros = 0);

// Whether (number - 1) / 2 is prime, for a number whose top bit is set and that is 3 modulo 4; as above.
bool is_half_prime_secret(EngineKind engine, std::span<const std::uint64_t> number);

// Whether the difference of two numbers of the same length reaches into their upper 100 bits: factors that
// are closer could be found from the root of their product. Constant-time but for the verdict.
bool are_far_apart(std::span<const std::uint64_t> left, std::span<const std::uint64_t> right);

}  // namespace shieldfl::paillier
