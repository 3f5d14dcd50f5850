#include <algorithm>
#include <cstdint>
#include <span>

#include "paillier/keys.h"
#include "tests/check.h"
#include "tests/paillier/paillier_cases.h"

namespace paillier_keys_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;

namespace {

const Parameters kShort({.key_bits = 2048});
const Parameters kClassical({.key_bits = 2048, .randomizer = Randomizer::kClassical});

EngineKind engine() {
  return engine_for(instruction_set());
}

}  // namespace

TEST(generated_paillier_keys_have_safe_primes) {
  InsecureTestRandom seeds(5);
  const KeyPair pair = generate_keys(kShort, seeds, engine());
  const auto exported = pair.secret_key->export_secret();
  const BigInteger one(1);
  BigInteger product(1);
  for (const auto half : {std::span(exported).first(128), std::span(exported).last(128)}) {
    const BigInteger prime = tests::from_bytes(half);
    CHECK(half.front() >= 0xc0 && half.back() % 4 == 3);
    CHECK(prime.is_probable_prime(20) && ((prime - one) / BigInteger(2)).is_probable_prime(20));
    product = product * prime;
  }
  CHECK(product == tests::modulus_of(*pair.public_key));
  CHECK(pair.secret_key->key_id() == pair.public_key->id());
}

TEST(bases_are_minus_a_square) {
  const SecretVector<std::uint64_t>& factors = tests::insecure_factors(2048);
  InsecureTestRandom seeds(6);
  const KeyPair one = key_pair_of(kShort, factors, seeds, engine());
  const KeyPair two = key_pair_of(kShort, factors, seeds, engine());
  CHECK(!std::ranges::equal(one.public_key->base(), two.public_key->base()));
  CHECK(one.public_key->id() != two.public_key->id());
  for (const KeyPair& pair : {one, two}) {
    const BigInteger h = BigInteger::from_words(pair.public_key->base());
    const auto half = std::span(factors).first(factors.size() / 2);
    const auto other_half = std::span(factors).last(factors.size() / 2);
    // -1 is no square modulo either factor, so that minus a square is none.
    CHECK(jacobi_symbol(h, BigInteger::from_words(half)) == -1);
    CHECK(jacobi_symbol(h, BigInteger::from_words(other_half)) == -1);
  }
}

TEST(classical_paillier_keys_have_no_base) {
  InsecureTestRandom seeds(7);
  RandomStream random(seeds.next(), 0);
  // Of primes that are 1 modulo 4, as other libraries make them.
  const BigInteger p = tests::insecure_prime(random, 1024, 1);
  const BigInteger q = tests::insecure_prime(random, 1024, 1);
  const KeyPair pair = key_pair_of(kClassical, tests::factor_words(p, q, 2048), seeds, engine());
  CHECK(BigInteger::from_words(pair.public_key->base()) == BigInteger(0));
  CHECK(tests::modulus_of(*pair.public_key) == p * q);
  CHECK_THROWS(key_pair_of(kShort, tests::factor_words(p, q, 2048), seeds, engine()), ErrorCode::kParameter);
}

TEST(factors_that_make_no_key_of_this_size_are_refused) {
  InsecureTestRandom seeds(8);
  const SecretVector<std::uint64_t>& factors = tests::insecure_factors(2048);
  const auto refused = [&](const Parameters& parameters, const SecretVector<std::uint64_t>& given) {
    CHECK_THROWS(key_pair_of(parameters, given, seeds, engine()), ErrorCode::kParameter);
  };
  refused(Parameters({.key_bits = 3072}), factors);
  refused(kShort, {});
  refused(kShort, {factors.begin(), factors.end() - 1});
  SecretVector<std::uint64_t> longer(factors);
  longer.push_back(0);
  refused(kShort, longer);
  SecretVector<std::uint64_t> even(factors);
  even.front() ^= 1;
  refused(kShort, even);
  SecretVector<std::uint64_t> equal(factors);
  std::copy_n(equal.begin(), equal.size() / 2, equal.begin() + static_cast<std::ptrdiff_t>(equal.size() / 2));
  refused(kShort, equal);
}

}  // namespace paillier_keys_tests
