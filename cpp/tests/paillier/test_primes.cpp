#include "common/random.h"
#include "paillier/primes.h"
#include "tests/check.h"
#include "tests/paillier/engine_cases.h"

namespace paillier_primes_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using namespace shieldfl::tests;

namespace {

BigInteger prime_of_seed(unsigned bits, std::uint64_t seed) {
  InsecureTestRandom seeds(seed);
  RandomStream random(seeds.next(), 0);
  return random_safe_prime(bits, random);
}

}  // namespace

TEST(safe_primes_are_safe_and_of_the_length_asked_for) {
  for (const unsigned bits : {64, 65, 66, 96, 127, 128, 129, 192, 256}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const BigInteger prime = prime_of_seed(bits, seed);
      CHECK(prime.bit_length() == bits);
      CHECK(prime / power_of_two(bits - 2) == BigInteger(3));
      CHECK((prime * prime).bit_length() == 2 * bits);
      CHECK(prime.modulo_word(4) == 3);
      CHECK(prime.is_probable_prime(kPrimalityRounds));
      CHECK((prime / BigInteger(2)).is_probable_prime(kPrimalityRounds));
    }
  }
}

TEST(safe_primes_depend_on_the_seed_alone) {
  for (const unsigned bits : {64, 160}) {
    const BigInteger prime = prime_of_seed(bits, 1);
    CHECK(prime_of_seed(bits, 1) == prime);
    CHECK(!(prime_of_seed(bits, 2) == prime));
  }
  InsecureTestRandom seeds(1);
  RandomStream random(seeds.next(), 0);
  const auto first = random_safe_prime(64, random);
  CHECK(!(random_safe_prime(64, random) == first));
}

// Small primes, counted: p of 64 bits passes each small prime's residues evenly, so the sieve leaves none
// out.
TEST(safe_primes_fall_into_all_residues_that_they_can) {
  bool seen[35] = {};
  for (std::uint64_t seed = 0; seed < 300; ++seed) seen[prime_of_seed(64, seed).modulo_word(35)] = true;
  for (std::uint64_t residue = 0; residue < 35; ++residue) {
    const bool possible = residue % 5 > 1 && residue % 7 > 1;  // 0 and 1: p or p' would have a small factor
    CHECK(seen[residue] == possible);
  }
}

TEST(safe_primes_below_the_least_size_are_refused) {
  InsecureTestRandom seeds(4);
  RandomStream random(seeds.next(), 0);
  CHECK_THROWS(random_safe_prime(kLeastSafePrimeBits - 1, random), ErrorCode::kParameter);
  CHECK_THROWS(random_safe_prime(0, random), ErrorCode::kParameter);
}

}  // namespace paillier_primes_tests
