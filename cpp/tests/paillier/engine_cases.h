// Moduli and numbers for the tests of Paillier's engines, and the same arithmetic in plain big integers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "paillier/big_integer.h"
#include "paillier/engine.h"

namespace shieldfl::tests {

using Words = std::vector<std::uint64_t>;

inline Words words_of(const paillier::BigInteger& number, std::size_t words) {
  const auto secret = number.to_words(words);
  return {secret.begin(), secret.end()};
}

inline paillier::BigInteger power_of_two(std::size_t exponent) {
  Words words(exponent / 64 + 1, 0);
  words.back() = std::uint64_t{1} << (exponent % 64);
  return paillier::BigInteger::from_words(words);
}

inline paillier::BigInteger random_below(const paillier::BigInteger& bound, std::mt19937_64& random) {
  Words words(bound.bit_length() / 64 + 2);
  for (std::uint64_t& word : words) word = random();
  return paillier::BigInteger::from_words(words) % bound;
}

// Odd numbers of `bits` bits: the smallest, the largest and one at random.
inline std::vector<paillier::BigInteger> moduli_of(std::size_t bits, std::mt19937_64& random) {
  using paillier::BigInteger;
  const BigInteger least = power_of_two(bits - 1);
  const BigInteger even = least + random_below(power_of_two(bits - 2), random) * BigInteger(2) % least;
  return {least + BigInteger(1), least + least - BigInteger(1), even + BigInteger(1 - even.modulo_word(2))};
}

// `count` numbers below bound = n or n^2, which begin with those at the edges.
inline std::vector<paillier::BigInteger> numbers_below(const paillier::BigInteger& bound,
                                                       const paillier::BigInteger& modulus, std::size_t count,
                                                       std::mt19937_64& random) {
  using paillier::BigInteger;
  const BigInteger one(1);
  std::vector<BigInteger> numbers;
  for (const BigInteger& edge : {bound - one, BigInteger(0), one, modulus - one, modulus, modulus + one}) {
    if (numbers.size() < count && edge < bound) numbers.push_back(edge);
  }
  while (numbers.size() < count) numbers.push_back(random_below(bound, random));
  return numbers;
}

inline Words concatenate(const std::vector<paillier::BigInteger>& numbers, std::size_t words_each) {
  Words words;
  for (const paillier::BigInteger& number : numbers) {
    const auto next = number.to_words(words_each);
    words.insert(words.end(), next.begin(), next.end());
  }
  return words;
}

// The pairs of residues modulo n^2.
inline Words concatenate_pairs(const std::vector<paillier::BigInteger>& residues,
                               const paillier::BigInteger& modulus) {
  std::vector<paillier::BigInteger> halves;
  for (const paillier::BigInteger& residue : residues) {
    halves.push_back(residue % modulus);
    halves.push_back(residue / modulus);
  }
  return concatenate(halves, (modulus.bit_length() + 63) / 64);
}

inline std::shared_ptr<const paillier::Engine> engine_of(paillier::EngineKind kind,
                                                         const paillier::BigInteger& modulus) {
  return paillier::Engine::make(kind, words_of(modulus, (modulus.bit_length() + 63) / 64));
}

}  // namespace shieldfl::tests
