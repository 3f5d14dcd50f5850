// The primes of a ring, and how long their product may be: both from Microsoft SEAL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shieldfl::rlwe {

// The largest distinct primes of the given lengths that are 1 modulo 2 * degree. Empty when there are none.
std::vector<std::uint64_t> ntt_primes(std::size_t degree, std::span<const int> prime_bits);

inline constexpr int kSecurityBits = 128;

// Throws Error(kParameter) unless the product of the primes is short enough for 128 bits of security by the
// homomorphic encryption standard's table for ternary secrets; other secrets here are wider than those.
void check_security(std::size_t degree, std::span<const std::uint64_t> primes);

}  // namespace shieldfl::rlwe
