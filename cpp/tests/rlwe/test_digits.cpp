// Residues, digits and sums of digits against long integers, for one to four primes.
#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "rlwe/digits.h"
#include "tests/check.h"
#include "tests/rlwe/rlwe_cases.h"

namespace rlwe_digits_tests {

using namespace shieldfl;
using namespace shieldfl::rlwe;
using tests::BigInteger;

namespace {

using Words = std::vector<std::uint64_t>;

constexpr std::size_t kDegree = 2048;

// Small and large residues, the largest in each place.
Words random_residues(const Words& primes, std::mt19937_64& generator) {
  Words residues(primes.size() * kDegree);
  for (std::size_t i = 0; i < residues.size(); ++i) {
    const std::uint64_t q = primes[i / kDegree];
    const std::uint64_t kinds[] = {0, 1, q - 1, generator() % q, generator() % q};
    residues[i] = kinds[generator() % std::size(kinds)];
  }
  return residues;
}

}  // namespace

TEST(digits_are_the_number_that_has_the_residues) {
  std::mt19937_64 generator(511);
  for (const Words& primes : tests::prime_lists(kDegree)) {
    CHECK(!primes.empty());
    const DigitBasis basis(kDegree, primes);
    for (int repetition = 0; repetition < 4; ++repetition) {
      const Words residues = random_residues(primes, generator);
      Words digits = residues;
      basis.from_residues(digits);
      for (std::size_t i = 0; i < kDegree; ++i) {
        const BigInteger number = tests::number_of(primes, digits, i);
        for (std::size_t p = 0; p < primes.size(); ++p) {
          CHECK(digits[p * kDegree + i] < primes[p]);
          CHECK(number.modulo_word(primes[p]) == residues[p * kDegree + i]);
        }
      }
      basis.to_residues(digits);
      CHECK(digits == residues);
    }
  }
}

TEST(sums_of_digits_become_digits_of_the_same_number) {
  std::mt19937_64 generator(512);
  constexpr std::uint64_t kMost = (std::uint64_t{1} << 63) - 1;
  for (const Words& primes : tests::prime_lists(kDegree)) {
    const DigitBasis basis(kDegree, primes);
    const BigInteger modulus = tests::product(primes);
    for (int repetition = 0; repetition < 4; ++repetition) {
      Words sums(primes.size() * kDegree);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::uint64_t q = primes[i / kDegree];
        const std::uint64_t multiple = kMost / q * q;
        const std::uint64_t kinds[] = {0,     kMost, multiple - 1,     multiple,
                                       q - 1, q,     generator() >> 1, generator() >> (1 + generator() % 63)};
        sums[i] = kinds[generator() % std::size(kinds)];
      }
      Words digits = sums;
      basis.reduce(digits);
      for (std::size_t i = 0; i < kDegree; ++i) {
        for (std::size_t p = 0; p < primes.size(); ++p) CHECK(digits[p * kDegree + i] < primes[p]);
        CHECK(tests::number_of(primes, digits, i) == tests::number_of(primes, sums, i) % modulus);
      }
      Words again = digits;
      basis.reduce(again);
      CHECK(again == digits);
    }
  }
}

}  // namespace rlwe_digits_tests
