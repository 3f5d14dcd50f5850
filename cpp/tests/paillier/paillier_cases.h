// What the tests of Paillier share: keys that take no time to make, and ciphertexts made by the book.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "common/cpu_features.h"
#include "common/random.h"
#include "paillier/big_integer.h"
#include "paillier/engine.h"
#include "paillier/keys.h"
#include "paillier/parameters.h"

namespace shieldfl::tests {

// The engines that this process may use.
inline std::vector<paillier::EngineKind> available_engines() {
  const paillier::EngineKind best = paillier::engine_for(instruction_set());
  if (best == paillier::EngineKind::kGmp) return {best};
  return {paillier::EngineKind::kGmp, best};
}

// Uniform below 2^(64 * words).
inline paillier::BigInteger random_integer(RandomStream& random, std::size_t words) {
  std::vector<std::uint64_t> drawn(words);
  for (std::uint64_t& word : drawn) word = random.next_u64();
  return paillier::BigInteger::from_words(drawn);
}

// Whether one of the smallest primes divides it, which shows most candidates for a prime to be none.
inline bool has_small_factor(const paillier::BigInteger& number) {
  for (std::uint64_t divisor = 3; divisor < 2000; divisor += 2) {
    if (number.modulo_word(divisor) == 0) return true;
  }
  return false;
}

// A prime that is `residue` modulo 4, its upper two bits set. No safe prime, which takes seconds to find.
inline paillier::BigInteger insecure_prime(RandomStream& random, std::size_t bits,
                                           std::uint64_t residue = 3) {
  SecretVector<std::uint64_t> words(bits / 64);
  for (std::uint64_t& word : words) word = random.next_u64();
  words.front() = (words.front() & ~std::uint64_t{3}) | residue;
  words.back() |= std::uint64_t{3} << 62;
  auto prime = paillier::BigInteger::from_words(words);
  while (has_small_factor(prime) || !prime.is_probable_prime(1)) prime = prime + paillier::BigInteger(4);
  return prime;
}

// p and then q, as SecretKey takes them.
inline SecretVector<std::uint64_t> factor_words(const paillier::BigInteger& p, const paillier::BigInteger& q,
                                                std::size_t key_bits) {
  SecretVector<std::uint64_t> factors = p.to_words(key_bits / 128);
  const auto other = q.to_words(key_bits / 128);
  factors.insert(factors.end(), other.begin(), other.end());
  return factors;
}

// Words of the generator SplitMix64, the upper two bits and the lower two set: where the search for a safe
// prime of this length begins that ends at known_safe_prime().
inline paillier::BigInteger known_number(std::size_t bits, std::uint64_t index) {
  std::vector<std::uint64_t> words(bits / 64);
  std::uint64_t state = bits + index;
  for (std::uint64_t& word : words) {
    state += 0x9E3779B97F4A7C15;
    word = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    word ^= word >> 31;
  }
  words.front() |= 3;
  words.back() |= std::uint64_t{3} << 62;
  return paillier::BigInteger::from_words(words);
}

// The first safe prime above it in steps of 4. `bits`: 1024, 1536 or 2048. `index`: 0 to 3.
inline paillier::BigInteger known_safe_prime(std::size_t bits, std::uint64_t index) {
  static const std::map<std::size_t, std::array<std::uint64_t, 4>> above = {
      {1024, {2073720, 358720, 89668, 186124}},
      {1536, {257856, 4549096, 179956, 900972}},
      {2048, {1605268, 2997068, 2048768, 1643088}}};
  return known_number(bits, index) + paillier::BigInteger(above.at(bits)[index]);
}

// Factors for keys of this length, the same ones for every test.
inline const SecretVector<std::uint64_t>& insecure_factors(std::size_t key_bits) {
  static std::map<std::size_t, SecretVector<std::uint64_t>> kept;
  const auto found = kept.find(key_bits);
  if (found != kept.end()) return found->second;
  const auto p = known_safe_prime(key_bits / 2, 0);
  const auto q = known_safe_prime(key_bits / 2, 1);
  return kept.emplace(key_bits, factor_words(p, q, key_bits)).first->second;
}

// A key pair for these parameters, the same one for every test.
inline const paillier::KeyPair& key_pair(const paillier::Parameters& parameters,
                                         paillier::EngineKind engine) {
  static std::map<std::pair<Id, paillier::EngineKind>, paillier::KeyPair> kept;
  const auto name = std::pair(parameters.id(), engine);
  const auto found = kept.find(name);
  if (found != kept.end()) return found->second;
  InsecureTestRandom seeds(2026);
  auto pair = paillier::key_pair_of(parameters, insecure_factors(parameters.facts().key_bits), seeds, engine);
  return kept.emplace(name, std::move(pair)).first->second;
}

inline const paillier::KeyPair& key_pair(const paillier::Parameters& parameters) {
  return key_pair(parameters, paillier::engine_for(instruction_set()));
}

// By the definition: the highest byte first.
inline paillier::BigInteger from_bytes(std::span<const std::uint8_t> big_endian) {
  paillier::BigInteger number;
  for (const std::uint8_t byte : big_endian)
    number = number * paillier::BigInteger(256) + paillier::BigInteger(byte);
  return number;
}

inline std::vector<std::uint8_t> to_bytes(paillier::BigInteger number, std::size_t count) {
  std::vector<std::uint8_t> big_endian(count);
  for (std::size_t i = count; i-- > 0; number = number / paillier::BigInteger(256)) {
    big_endian[i] = static_cast<std::uint8_t>(number.modulo_word(256));
  }
  return big_endian;
}

inline paillier::BigInteger modulus_of(const paillier::PublicKey& key) {
  return paillier::BigInteger::from_words(key.modulus());
}

// (1 + plaintext n) r^n modulo n^2: by the book, for any r without a factor in common with n.
inline paillier::BigInteger ciphertext_of(const paillier::PublicKey& key,
                                          const paillier::BigInteger& plaintext,
                                          const paillier::BigInteger& r) {
  const paillier::BigInteger n = modulus_of(key);
  return (paillier::BigInteger(1) + plaintext * n) * power_modulo(r, n, n * n) % (n * n);
}

// The same for many plaintexts, whose r are a random number and its powers: one long power for all of them.
inline std::vector<paillier::BigInteger> ciphertexts_of(const paillier::PublicKey& key,
                                                        const std::vector<paillier::BigInteger>& plaintexts,
                                                        RandomStream& random) {
  const paillier::BigInteger n = modulus_of(key);
  const paillier::BigInteger first =
      ciphertext_of(key, paillier::BigInteger(0), random_integer(random, key.modulus().size()) % n);
  paillier::BigInteger encrypted_zero = first;
  std::vector<paillier::BigInteger> ciphertexts;
  for (const paillier::BigInteger& plaintext : plaintexts) {
    ciphertexts.push_back((paillier::BigInteger(1) + plaintext * n) * encrypted_zero % (n * n));
    encrypted_zero = encrypted_zero * first % (n * n);
  }
  return ciphertexts;
}

}  // namespace shieldfl::tests
