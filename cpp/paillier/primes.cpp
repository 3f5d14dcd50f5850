#include "paillier/primes.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/secure_memory.h"

namespace shieldfl::paillier {

namespace {

// About one odd p' of b bits in b^2 / 5.5 makes a safe prime, so most stretches of b^2 / 4 have one. Sieving
// further than 3 b^2 takes as long as the tests that it spares.
std::size_t stretch_length(unsigned bits) {
  return std::size_t{bits} * bits / 4;
}
std::uint32_t sieve_bound(unsigned bits) {
  return 3 * std::uint32_t{bits} * bits;
}

std::vector<std::uint32_t> odd_primes_below(std::uint32_t bound) {
  std::vector<bool> composite(bound, false);
  std::vector<std::uint32_t> primes;
  for (std::uint64_t number = 3; number < bound; number += 2) {
    if (composite[number]) continue;
    primes.push_back(static_cast<std::uint32_t>(number));
    for (std::uint64_t multiple = number * number; multiple < bound; multiple += 2 * number) {
      composite[multiple] = true;
    }
  }
  return primes;
}

// A random odd number of `bits` bits, the upper two set.
BigInteger random_odd_number(unsigned bits, RandomStream& random) {
  SecretVector<std::uint64_t> words((bits + 63) / 64);
  for (std::uint64_t& word : words) word = random.next_u64();
  words.back() &= ~std::uint64_t{0} >> (64 * words.size() - bits);
  for (const unsigned bit : {bits - 1, bits - 2, 0U}) words[bit / 64] |= std::uint64_t{1} << (bit % 64);
  return BigInteger::from_words(words);
}

// survives[i] is zero where a small prime divides start + 2 i or 2 (start + 2 i) + 1.
void sieve(const BigInteger& start, const std::vector<std::uint32_t>& primes,
           SecretVector<std::uint8_t>& survives) {
  std::fill(survives.begin(), survives.end(), std::uint8_t{1});
  for (const std::uint64_t prime : primes) {
    const std::uint64_t residue = start.modulo_word(prime);
    const std::uint64_t half = (prime + 1) / 2;
    const std::uint64_t quarter = half * half % prime;
    const std::uint64_t first = (prime - residue) * half % prime;
    const std::uint64_t first_of_double = (2 * prime - (2 * residue + 1) % prime) * quarter % prime;
    for (std::size_t i = first; i < survives.size(); i += prime) survives[i] = 0;
    for (std::size_t i = first_of_double; i < survives.size(); i += prime) survives[i] = 0;
  }
}

// Fermat's test to the base 2: false for a composite but for very few.
bool may_be_prime(const BigInteger& number) {
  return power_modulo(BigInteger(2), number - BigInteger(1), number) == BigInteger(1);
}

}  // namespace

BigInteger random_safe_prime(unsigned bits, RandomStream& random) {
  if (bits < kLeastSafePrimeBits) {
    throw Error(ErrorCode::kParameter, "a safe prime is searched for from " +
                                           std::to_string(kLeastSafePrimeBits) + " bits on, not of " +
                                           std::to_string(bits));
  }
  const std::vector<std::uint32_t> primes = odd_primes_below(sieve_bound(bits));
  SecretVector<std::uint8_t> survives(stretch_length(bits));
  for (;;) {
    const BigInteger start = random_odd_number(bits - 1, random);
    sieve(start, primes, survives);
    for (std::size_t i = 0; i < survives.size(); ++i) {
      if (survives[i] == 0) continue;
      const BigInteger half = start + BigInteger(2 * i);
      if (half.bit_length() != bits - 1) break;
      if (!may_be_prime(half)) continue;
      const BigInteger prime = half + half + BigInteger(1);
      if (!may_be_prime(prime)) continue;
      if (half.is_probable_prime(kPrimalityRounds) && prime.is_probable_prime(kPrimalityRounds)) return prime;
    }
  }
}

}  // namespace shieldfl::paillier
