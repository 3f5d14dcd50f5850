#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "paillier/public_key.h"
#include "tests/altered_frames.h"
#include "tests/check.h"
#include "tests/paillier/paillier_cases.h"

namespace paillier_public_key_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::Frame;
using tests::key_pair;

namespace {

const Parameters kShort({.key_bits = 2048});
const Parameters kClassical({.key_bits = 2048, .randomizer = Randomizer::kClassical});
const BigInteger kZero(0);
const BigInteger kOne(1);

EngineKind engine() {
  return engine_for(instruction_set());
}

std::vector<std::uint64_t> words_of(const BigInteger& number, std::size_t words) {
  const auto secret = number.to_words(words);
  return {secret.begin(), secret.end()};
}

void make(const Parameters& parameters, const BigInteger& n, const BigInteger& h) {
  const std::size_t words = parameters.modulus_words();
  (void)PublicKey(parameters, words_of(n, words), words_of(h, words), engine());
}

// The key's frame with other contents, and ids that fit.
Frame frame_of(const Parameters& parameters, const BigInteger& n, const BigInteger& h) {
  auto body = parameters.facts().encode();
  for (const BigInteger& number : {n, h}) {
    const auto bytes = tests::to_bytes(number, parameters.modulus_bytes());
    body.insert(body.end(), bytes.begin(), bytes.end());
  }
  FrameWriter writer({FrameKind::kPaillierPublicKey, parameters.id(), digest(body)}, body.size());
  writer.put_bytes(body);
  return writer.finish();
}

void check_refused(const Parameters& parameters, const BigInteger& n, const BigInteger& h) {
  CHECK_THROWS(make(parameters, n, h), ErrorCode::kParameter);
  CHECK_THROWS(PublicKey::from_frame(frame_of(parameters, n, h), engine()), ErrorCode::kParameter);
}

void check_modulus_refused(const BigInteger& n) {
  check_refused(kClassical, n, kZero);
  check_refused(kShort, n, BigInteger::from_words(key_pair(kShort).public_key->base()));
}

BigInteger factor(std::size_t number) {
  const SecretVector<std::uint64_t>& factors = tests::insecure_factors(2048);
  const std::size_t half = factors.size() / 2;
  return BigInteger::from_words(std::span(factors).subspan(number * half, half));
}

BigInteger power_of_two(std::size_t exponent) {
  std::vector<std::uint64_t> words(exponent / 64 + 1);
  words.back() = std::uint64_t{1} << (exponent % 64);
  return BigInteger::from_words(words);
}

RandomStream fresh_stream(std::uint64_t seed) {
  return {InsecureTestRandom(seed).next(), 0};
}

}  // namespace

TEST(public_keys_know_their_modulus) {
  for (const Parameters& parameters :
       {kShort, kClassical, Parameters({.key_bits = 3072}), Parameters({.key_bits = 4096})}) {
    const PublicKey& key = *key_pair(parameters).public_key;
    const BigInteger n = tests::modulus_of(key);
    CHECK(n.bit_length() == parameters.facts().key_bits);
    CHECK(BigInteger::from_words(key.modulus_square()) == n * n);
    CHECK(key.engine().words() == parameters.modulus_words());
  }
  CHECK(tests::modulus_of(*key_pair(kShort).public_key) == factor(0) * factor(1));
  CHECK(key_pair(kClassical).public_key->id() != key_pair(kShort).public_key->id());
}

TEST(powers_of_the_base_are_nth_residues) {
  for (const EngineKind kind : tests::available_engines()) {
    const PublicKey& key = *key_pair(kShort, kind).public_key;
    const BigInteger n = tests::modulus_of(key);
    const FixedBase& base = key.fixed_base();
    CHECK(&base == &key.fixed_base());
    CHECK(base.exponent_bits() == 1024);
    RandomStream random = fresh_stream(3);
    const BigInteger exponent = tests::random_integer(random, base.exponent_words());
    std::vector<std::uint64_t> power(key.engine().pair_words());
    base.power(exponent.to_words(base.exponent_words()), power);
    key.engine().to_residues(power, power);
    const BigInteger h = BigInteger::from_words(key.base());
    CHECK(BigInteger::from_words(power) == power_modulo(h, n * exponent, n * n));
  }
  CHECK_THROWS(key_pair(kClassical).public_key->fixed_base(), ErrorCode::kInternal);
}

TEST(paillier_public_keys_survive_the_wire) {
  for (const Parameters& parameters :
       {kShort, kClassical, Parameters({.key_bits = 3072}), Parameters({.key_bits = 4096})}) {
    const PublicKey& key = *key_pair(parameters).public_key;
    const Frame frame = key.to_frame();
    CHECK(frame.size() == frame_bytes(ParameterFacts::kEncodedBytes + 2 * parameters.modulus_bytes()));
    const auto back = PublicKey::from_frame(frame, engine());
    CHECK(back->id() == key.id() && back->parameters() == parameters);
    CHECK(std::ranges::equal(back->modulus(), key.modulus()) && std::ranges::equal(back->base(), key.base()));
    CHECK(back->to_frame() == frame);
    CHECK(frame == frame_of(parameters, tests::modulus_of(key), BigInteger::from_words(key.base())));
  }
}

TEST(altered_paillier_public_keys_are_refused) {
  for (const Parameters& parameters : {kShort, kClassical}) {
    const Frame frame = key_pair(parameters).public_key->to_frame();
    const auto refuses = [](const Frame& altered) {
      CHECK_THROWS(PublicKey::from_frame(altered, engine()), ErrorCode::kWireFormat);
    };
    for (std::size_t offset = 0; offset < frame.size(); ++offset) {
      Frame altered = frame;
      altered[offset] ^= 1;
      refuses(altered);  // the checksum
      if (offset >= 16 && offset < frame.size() - kFrameTrailerBytes) {
        tests::reseal(altered);
        refuses(altered);  // one of the ids
      }
      Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(offset));
      refuses(cut);
      tests::reseal(cut);
      refuses(cut);
    }
    Frame longer = frame;
    longer.push_back(0);
    tests::reseal(longer);
    refuses(longer);
  }
}

TEST(moduli_that_are_no_product_of_two_large_primes_are_refused) {
  RandomStream random = fresh_stream(4);
  const BigInteger n = factor(0) * factor(1);
  const BigInteger p = factor(0);
  check_modulus_refused(n - kOne);                                                 // even
  check_modulus_refused(p);                                                        // of 1024 bits
  check_modulus_refused(tests::insecure_prime(random, 1920) * BigInteger(65537));  // of 1937 bits
  check_modulus_refused(tests::insecure_prime(random, 2048));                      // a prime
  check_modulus_refused(p * p);                                                    // a square
  check_modulus_refused(power_of_two(2047));
  check_modulus_refused(kZero);
  for (const std::uint64_t small : {3U, 5U, 251U, 65521U}) {
    // As long as n and odd, but for the small factor.
    const BigInteger multiple = n - n % BigInteger(2 * small) + BigInteger(small);
    CHECK(multiple.bit_length() == 2048 && multiple.modulo_word(2) == 1);
    check_modulus_refused(multiple);
  }
}

TEST(small_factors_are_those_below_a_limit) {
  // 65537 is the next prime above it; whoever makes a key of such a factor has other ways to fail.
  RandomStream random = fresh_stream(5);
  BigInteger cofactor = power_of_two(2047) / BigInteger(65537) + tests::random_integer(random, 2);
  while (!cofactor.is_probable_prime(1)) cofactor = cofactor + kOne;
  make(kClassical, cofactor * BigInteger(65537), kZero);
}

TEST(bases_that_hide_nothing_are_refused) {
  const BigInteger n = factor(0) * factor(1);
  const BigInteger h = BigInteger::from_words(key_pair(kShort).public_key->base());
  make(kShort, n, h);
  for (const BigInteger& base : {kZero, kOne, n - kOne, n, n + BigInteger(4)}) check_refused(kShort, n, base);
  check_refused(kShort, n, factor(0));
  check_refused(kShort, n, factor(1) * BigInteger(9));
  BigInteger non_residue(2);
  while (jacobi_symbol(non_residue, n) != -1) non_residue = non_residue + kOne;
  check_refused(kShort, n, non_residue);
  check_refused(kClassical, n, h);
  make(kClassical, n, kZero);
}

TEST(public_keys_of_the_wrong_length_are_refused) {
  const PublicKey& key = *key_pair(kShort).public_key;
  const std::vector<std::uint64_t> n(key.modulus().begin(), key.modulus().end());
  const std::vector<std::uint64_t> h(key.base().begin(), key.base().end());
  const auto refused = [](const Parameters& parameters, std::vector<std::uint64_t> modulus,
                          std::vector<std::uint64_t> base) {
    CHECK_THROWS(PublicKey(parameters, std::move(modulus), std::move(base), engine()), ErrorCode::kParameter);
  };
  const auto resized = [](std::vector<std::uint64_t> words, std::size_t size) {
    words.resize(size);
    return words;
  };
  refused(kShort, {}, {});
  refused(kShort, n, {});
  refused(kShort, resized(n, 31), h);
  refused(kShort, resized(n, 33), h);
  refused(kShort, n, resized(h, 31));
  refused(kShort, n, resized(h, 33));
  refused(Parameters({.key_bits = 3072}), resized(n, 48), resized(h, 48));
}

}  // namespace paillier_public_key_tests
