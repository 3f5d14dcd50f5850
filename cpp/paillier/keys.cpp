#include "paillier/keys.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/taint.h"
#include "paillier/big_integer.h"
#include "paillier/primes.h"
#include "parallel/parallel_for.h"

namespace shieldfl::paillier {
namespace {

// -x^2 modulo n for a random x: its Jacobi symbol is 1 where both factors are 3 modulo 4, though it is no
// square.
BigInteger random_base(const Parameters& parameters, const BigInteger& n, SeedSource& seeds) {
  SecretVector<std::uint64_t> words(2 * parameters.modulus_words());  // near uniform below n
  RandomStream random(seeds.next(), 0);
  for (std::uint64_t& word : words) word = random.next_u64();
  const BigInteger x = BigInteger::from_words(words) % n;
  return n - x * x % n;
}

std::vector<std::uint64_t> public_words(const BigInteger& number, std::size_t words) {
  const auto secret = number.to_words(words);
  declassify(secret.data(), secret.size() * sizeof(std::uint64_t));  // n and h are published
  return {secret.begin(), secret.end()};
}

}  // namespace

KeyPair key_pair_of(const Parameters& parameters, SecretVector<std::uint64_t> factors, SeedSource& seeds,
                    EngineKind engine) {
  const std::size_t words = parameters.modulus_words();
  const std::size_t half = factors.size() / 2;
  const BigInteger n = BigInteger::from_words(std::span(factors).first(half)) *
                       BigInteger::from_words(std::span(factors).last(factors.size() - half));
  if (n.bit_length() != parameters.facts().key_bits || factors.size() != words) {
    throw Error(ErrorCode::kParameter, "the factors' product has to have exactly " +
                                           std::to_string(parameters.facts().key_bits) +
                                           " bits, each factor half of them");
  }
  const bool short_exponent = parameters.facts().randomizer == Randomizer::kShortExponent;
  const BigInteger h = short_exponent ? random_base(parameters, n, seeds) : BigInteger(0);
  auto public_key =
      std::make_shared<const PublicKey>(parameters, public_words(n, words), public_words(h, words), engine);
  auto secret_key = std::make_shared<const SecretKey>(*public_key, std::move(factors));
  return {std::move(public_key), std::move(secret_key)};
}

KeyPair generate_keys(const Parameters& parameters, SeedSource& seeds, EngineKind engine) {
  const std::size_t half = parameters.modulus_words() / 2;
  // Drawn here: a source need not be thread-safe.
  const std::array<Seed, 2> prime_seeds = {seeds.next(), seeds.next()};
  SecretVector<std::uint64_t> factors(2 * half);
  parallel_for(2, 2, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      RandomStream random(prime_seeds[i], 0);
      const auto prime = random_safe_prime(parameters.facts().key_bits / 2U, random).to_words(half);
      std::ranges::copy(prime, factors.begin() + static_cast<std::ptrdiff_t>(i * half));
    }
  });
  return key_pair_of(parameters, std::move(factors), seeds, engine);
}

}  // namespace shieldfl::paillier
