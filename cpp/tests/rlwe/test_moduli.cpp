#include <bit>
#include <cstdint>
#include <vector>

#include "rlwe/moduli.h"
#include "tests/check.h"
#include "tests/ring/ring_cases.h"

namespace rlwe_moduli_tests {

using namespace shieldfl;
using namespace shieldfl::rlwe;

namespace {

struct Row {
  std::size_t degree;
  std::vector<int> longest;  // lengths of primes, as long together as 128 bits of security allow
};

// The homomorphic encryption standard's table for ternary secrets and 128 bits: 54, 109 and 218.
const std::vector<Row> kTable = {{2048, {54}}, {4096, {54, 55}}, {8192, {54, 54, 55, 55}}};

}  // namespace

TEST(primes_fit_the_ring_and_have_the_lengths_asked_for) {
  for (const Row& row : kTable) {
    for (const std::vector<int>& lengths :
         {row.longest, std::vector<int>{30, 31, 31}, std::vector<int>{50, 50}}) {
      const auto primes = ntt_primes(row.degree, lengths);
      CHECK(primes.size() == lengths.size());
      for (std::size_t i = 0; i < primes.size(); ++i) {
        CHECK(primes[i] % (2 * row.degree) == 1 && tests::is_prime(primes[i]));
        CHECK(static_cast<int>(std::bit_width(primes[i])) == lengths[i]);
        for (std::size_t j = 0; j < i; ++j) CHECK(primes[i] != primes[j]);
      }
      CHECK(ntt_primes(row.degree, lengths) == primes);  // from what is kept
    }
    // No prime of so few bits is 1 modulo twice the degree.
    const int too_short = static_cast<int>(std::bit_width(row.degree));
    CHECK(ntt_primes(row.degree, std::vector<int>{too_short}).empty());
  }
}

TEST(a_modulus_is_as_long_as_the_standard_allows_and_not_a_bit_longer) {
  for (const Row& row : kTable) {
    check_security(row.degree, ntt_primes(row.degree, row.longest));
    std::vector<int> longer = row.longest;
    ++longer[0];
    const auto primes = ntt_primes(row.degree, longer);
    CHECK(primes.size() == longer.size());
    CHECK_THROWS((check_security(row.degree, primes), 0), ErrorCode::kParameter);
    // A ring of twice the degree has room for it.
    check_security(2 * row.degree, primes);
  }
}

}  // namespace rlwe_moduli_tests
