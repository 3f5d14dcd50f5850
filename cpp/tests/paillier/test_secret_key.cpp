#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "paillier/factor_checks.h"
#include "paillier/secret_key.h"
#include "tests/check.h"
#include "tests/paillier/paillier_cases.h"

namespace paillier_secret_key_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::factor_words;
using tests::insecure_prime;
using tests::key_pair;

namespace {

const Parameters kShort({.key_bits = 2048});
const Parameters kClassical({.key_bits = 2048, .randomizer = Randomizer::kClassical});
const BigInteger kOne(1);
const BigInteger kTwo(2);

EngineKind engine() {
  return engine_for(instruction_set());
}

RandomStream fresh_stream(std::uint64_t seed) {
  return {InsecureTestRandom(seed).next(), 0};
}

BigInteger factor(std::size_t number, const SecretVector<std::uint64_t>& factors) {
  const std::size_t half = factors.size() / 2;
  return BigInteger::from_words(std::span(factors).subspan(number * half, half));
}

// A public key, for classical randomisers, whose modulus is the product of these two.
PublicKey public_key_of(const BigInteger& p, const BigInteger& q) {
  const auto n = (p * q).to_words(kClassical.modulus_words());
  return {kClassical, {n.begin(), n.end()}, std::vector<std::uint64_t>(n.size()), engine()};
}

void make(const PublicKey& key, const BigInteger& p, const BigInteger& q) {
  (void)SecretKey(key, factor_words(p, q, key.parameters().facts().key_bits));
}

// The plaintexts of these ciphertexts.
std::vector<BigInteger> decrypted(const SecretKey& key, const std::vector<BigInteger>& ciphertexts) {
  const Parameters& parameters = key.parameters();
  std::vector<std::uint64_t> residues;
  for (const BigInteger& ciphertext : ciphertexts) {
    const auto words = ciphertext.to_words(parameters.ciphertext_words());
    residues.insert(residues.end(), words.begin(), words.end());
  }
  std::vector<std::uint64_t> plaintexts(ciphertexts.size() * parameters.modulus_words());
  key.decrypt(residues, plaintexts);
  std::vector<BigInteger> numbers;
  for (std::size_t i = 0; i < ciphertexts.size(); ++i) {
    numbers.push_back(BigInteger::from_words(
        std::span(plaintexts).subspan(i * parameters.modulus_words(), parameters.modulus_words())));
  }
  return numbers;
}

// Plaintexts at the ends of the range and between, encrypted by the book, for any number of them at once.
void check_decryption(const KeyPair& pair, std::uint64_t seed) {
  RandomStream random = fresh_stream(seed);
  const BigInteger n = tests::modulus_of(*pair.public_key);
  const auto exported = pair.secret_key->export_secret();
  const auto q = tests::from_bytes(std::span(exported).last(exported.size() / 2));
  const auto p = tests::from_bytes(std::span(exported).first(exported.size() / 2));
  std::vector<BigInteger> plaintexts = {BigInteger(0), kOne,  n - kOne, n / kTwo, n / kTwo + kOne, p, q,
                                        n - p,         n - q, p - kOne, q - kOne, q + kOne};
  while (plaintexts.size() < 19) {
    plaintexts.push_back(tests::random_integer(random, pair.public_key->modulus().size()) % n);
  }
  const std::vector<BigInteger> ciphertexts = tests::ciphertexts_of(*pair.public_key, plaintexts, random);
  CHECK(decrypted(*pair.secret_key, ciphertexts) == plaintexts);
  for (std::size_t count = 0; count < 3; ++count) {
    const std::vector<BigInteger> first(ciphertexts.begin(),
                                        ciphertexts.begin() + static_cast<std::ptrdiff_t>(count));
    CHECK(std::ranges::equal(decrypted(*pair.secret_key, first), std::span(plaintexts).first(count)));
  }
}

}  // namespace

TEST(ciphertexts_made_by_the_book_open) {
  for (const EngineKind kind : tests::available_engines()) {
    check_decryption(key_pair(kShort, kind), 11);
    check_decryption(key_pair(kClassical, kind), 12);
    check_decryption(key_pair(Parameters({.key_bits = 3072}), kind), 13);
    if (tests::all_are_tried()) check_decryption(key_pair(Parameters({.key_bits = 4096}), kind), 14);
  }
}

TEST(keys_of_any_primes_of_the_right_size_open) {
  RandomStream random = fresh_stream(15);
  InsecureTestRandom seeds(16);
  // The smallest and the largest: either one is the larger by far.
  const auto next_prime = [](BigInteger number) {
    while (tests::has_small_factor(number) || !number.is_probable_prime(1)) number = number + kTwo;
    return number;
  };
  std::vector<std::uint64_t> words(16, ~std::uint64_t{0});
  words[2] = 0;
  const BigInteger large = next_prime(BigInteger::from_words(words));
  std::fill(words.begin(), words.end(), 0);
  words.front() = 1;
  words.back() = (std::uint64_t{1} << 63) + 1;
  const BigInteger small = next_prime(BigInteger::from_words(words));
  const BigInteger one_modulo_four = insecure_prime(random, 1024, 1);
  for (const auto& [p, q] :
       {std::pair(large, small), std::pair(small, large), std::pair(one_modulo_four, large)}) {
    for (const EngineKind kind : tests::available_engines()) {
      check_decryption(key_pair_of(kClassical, factor_words(p, q, 2048), seeds, kind), 17);
    }
  }
}

TEST(decryption_turns_products_into_sums) {
  const KeyPair& pair = key_pair(kShort);
  const BigInteger n = tests::modulus_of(*pair.public_key);
  RandomStream random = fresh_stream(18);
  std::vector<BigInteger> products;
  std::vector<BigInteger> sums;
  for (int i = 0; i < 10; ++i) {
    const BigInteger left = tests::random_integer(random, 32) % n;
    const BigInteger right = tests::random_integer(random, 32) % n;
    products.push_back(tests::ciphertext_of(*pair.public_key, left, BigInteger(3)) *
                       tests::ciphertext_of(*pair.public_key, right, BigInteger(5)) % (n * n));
    sums.push_back((left + right) % n);
    products.push_back(
        power_modulo(tests::ciphertext_of(*pair.public_key, left, BigInteger(7)), right, n * n));
    sums.push_back(left * right % n);
  }
  CHECK(decrypted(*pair.secret_key, products) == sums);
}

TEST(a_paillier_secret_survives_export_and_import) {
  for (const Parameters& parameters : {kShort, kClassical, Parameters({.key_bits = 3072})}) {
    const KeyPair& pair = key_pair(parameters);
    const auto exported = pair.secret_key->export_secret();
    CHECK(exported.size() == parameters.modulus_bytes());
    const auto back = SecretKey::import_secret(*pair.public_key, exported);
    CHECK(back->export_secret() == exported && back->key_id() == pair.public_key->id());
    check_decryption({pair.public_key, back}, 19);
    // p and q may change places.
    SecretVector<std::uint8_t> swapped(exported);
    std::ranges::rotate(swapped, swapped.begin() + static_cast<std::ptrdiff_t>(swapped.size() / 2));
    check_decryption({pair.public_key, SecretKey::import_secret(*pair.public_key, swapped)}, 20);
  }
}

TEST(a_foreign_or_damaged_paillier_secret_is_refused) {
  const PublicKey& key = *key_pair(kShort).public_key;
  const auto refuses = [&](const SecretVector<std::uint8_t>& exported) {
    CHECK_THROWS(SecretKey::import_secret(key, exported), ErrorCode::kKeyMismatch);
  };
  const auto exported = key_pair(kShort).secret_key->export_secret();
  for (std::size_t offset = 0; offset < exported.size(); ++offset) {
    auto damaged = exported;
    damaged[offset] ^= 0x10;
    refuses(damaged);
  }
  refuses({});
  refuses({exported.begin(), exported.end() - 1});
  auto longer = exported;
  longer.push_back(0);
  refuses(longer);
  refuses(key_pair(Parameters({.key_bits = 3072})).secret_key->export_secret());
  refuses(SecretVector<std::uint8_t>(exported.size(), 0));
  refuses(SecretVector<std::uint8_t>(exported.size(), 0xff));
  RandomStream random = fresh_stream(21);
  const BigInteger other = insecure_prime(random, 1024);
  CHECK_THROWS(make(key, other, factor(1, tests::insecure_factors(2048))), ErrorCode::kKeyMismatch);
}

TEST(factors_that_are_not_prime_are_refused) {
  RandomStream random = fresh_stream(22);
  const BigInteger p = insecure_prime(random, 1024);
  const BigInteger composite = insecure_prime(random, 512) * insecure_prime(random, 512);
  CHECK(composite.bit_length() == 1024);
  const PublicKey key = public_key_of(p, composite);
  CHECK_THROWS(make(key, p, composite), ErrorCode::kParameter);
  CHECK_THROWS(make(key, composite, p), ErrorCode::kParameter);
}

TEST(factors_that_are_close_are_refused) {
  RandomStream random = fresh_stream(23);
  const BigInteger p = insecure_prime(random, 1024);
  BigInteger q = p + kTwo;
  while (!q.is_probable_prime(1)) q = q + kTwo;
  const PublicKey key = public_key_of(p, q);
  CHECK_THROWS(make(key, p, q), ErrorCode::kParameter);
  CHECK_THROWS(make(key, q, p), ErrorCode::kParameter);
}

TEST(numbers_are_far_apart_from_a_difference_in_the_upper_bits_on) {
  std::vector<std::uint64_t> base(16, 0x5555555555555555);
  for (std::size_t bit = 0; bit < 1024; ++bit) {
    auto other = base;
    other[bit / 64] ^= std::uint64_t{1} << (bit % 64);
    CHECK(are_far_apart(base, other) == (bit >= 924) && are_far_apart(other, base) == (bit >= 924));
  }
  CHECK(!are_far_apart(base, base));
}

TEST(short_exponents_need_factors_that_are_three_modulo_four) {
  RandomStream random = fresh_stream(24);
  const BigInteger p = insecure_prime(random, 1024);
  const BigInteger q = insecure_prime(random, 1024, 1);
  make(public_key_of(p, q), p, q);
  // A square has the Jacobi symbol of a base, so that the public key alone does not give it away.
  const auto n = (p * q).to_words(kShort.modulus_words());
  const auto square = BigInteger(9).to_words(kShort.modulus_words());
  const PublicKey key(kShort, {n.begin(), n.end()}, {square.begin(), square.end()}, engine());
  CHECK_THROWS(make(key, p, q), ErrorCode::kParameter);
  CHECK_THROWS(make(key, q, p), ErrorCode::kParameter);
}

TEST(short_exponents_need_safe_primes) {
  RandomStream random = fresh_stream(26);
  const BigInteger safe = factor(0, tests::insecure_factors(2048));
  const BigInteger unsafe = insecure_prime(random, 1024);
  CHECK(!((unsafe - kOne) / kTwo).is_probable_prime(30));
  InsecureTestRandom seeds(27);
  for (const EngineKind kind : tests::available_engines()) {
    for (const auto& [p, q] : {std::pair(safe, unsafe), std::pair(unsafe, safe)}) {
      (void)key_pair_of(kClassical, factor_words(p, q, 2048), seeds, kind);
      CHECK_THROWS(key_pair_of(kShort, factor_words(p, q, 2048), seeds, kind), ErrorCode::kParameter);
    }
    const BigInteger other = factor(1, tests::insecure_factors(2048));
    (void)key_pair_of(kShort, factor_words(safe, other, 2048), seeds, kind);
  }
}

TEST(secret_primality_of_a_half_agrees_with_gmp) {
  const std::uint64_t end = tests::all_are_tried() ? 4000 : 800;
  for (const EngineKind kind : tests::available_engines()) {
    int primes = 0;
    for (std::uint64_t low = 3; low < end; low += 4) {
      const std::vector<std::uint64_t> words{low, std::uint64_t{3} << 62};
      const auto half = (BigInteger::from_words(words) - kOne) / kTwo;
      const bool prime = half.is_probable_prime(30);
      primes += prime ? 1 : 0;
      CHECK(is_half_prime_secret(kind, words) == prime);
    }
    CHECK(primes > 0);
  }
}

TEST(secret_primality_agrees_with_gmp) {
  RandomStream random = fresh_stream(25);
  for (const EngineKind kind : tests::available_engines()) {
    const auto is_prime = [&](const BigInteger& number, std::size_t words) {
      const auto secret = number.to_words(words);
      return is_prime_secret(*Engine::make(kind, secret), secret);
    };
    int primes = 0;
    for (std::uint64_t low = 1; low < 800; low += 2) {
      // Numbers just above 2^127, where low - 1 says how often 2 divides number - 1.
      const auto number = BigInteger::from_words(std::vector<std::uint64_t>{low, std::uint64_t{1} << 63});
      const bool prime = number.is_probable_prime(30);
      primes += prime ? 1 : 0;
      CHECK(is_prime(number, 2) == prime);
    }
    CHECK(primes > 0);
    for (const std::uint64_t residue : {1U, 3U}) {
      const BigInteger p = insecure_prime(random, 512, residue);
      CHECK(is_prime(p, 8));
      CHECK(!is_prime(p * insecure_prime(random, 512, residue), 16));
      CHECK(!is_prime(p * p, 16));
    }
  }
}

}  // namespace paillier_secret_key_tests
