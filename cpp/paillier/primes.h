// Safe primes at random.
#pragma once

#include "common/random.h"
#include "paillier/big_integer.h"

namespace shieldfl::paillier {

inline constexpr unsigned kLeastSafePrimeBits = 64;

// Miller and Rabin's rounds after which a composite is taken for a prime with probability 2^-128 at most.
inline constexpr int kPrimalityRounds = 64;

// A prime p = 2 p' + 1 with p' prime, of exactly `bits` bits, at least kLeastSafePrimeBits, of which the
// upper two are set: so a product of two has 2 * bits bits. It is 3 modulo 4. Each is the first one in a
// stretch of numbers whose place is random. Any number of threads may search at once, each with a stream of
// its own. Not constant-time: made once, where the key is.
BigInteger random_safe_prime(unsigned bits, RandomStream& random);

}  // namespace shieldfl::paillier
