// Ciphertexts as the digits that travel, for tests that do the arithmetic of batches and totals on their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ckks/ciphertext.h"
#include "ring/modulus.h"

namespace shieldfl::tests {

// The digits of all ciphertexts, with the middle of what a batch leaves out.
inline std::vector<std::uint64_t> digits_of(const ckks::CiphertextView& frame) {
  const ckks::ParameterFacts& facts = frame.facts;
  std::vector<std::uint64_t> digits(ckks::block_count(facts, frame.layout) * facts.block_words());
  for (std::size_t block = 0; block < digits.size() / facts.block_words(); ++block) {
    frame.format.unpack(frame.block(block),
                        std::span(digits).subspan(block * facts.block_words(), facts.block_words()));
  }
  return digits;
}

inline ring::UInt128 modulus_of(const ckks::ParameterFacts& facts) {
  ring::UInt128 modulus = 1;
  for (const std::uint64_t prime : facts.primes) modulus *= prime;
  return modulus;
}

// The number, modulo the product of all primes, that the digits of a coefficient stand for, also if they are
// sums of digits. `half`: that coefficient's half of its ciphertext, in rows of digits.
inline ring::UInt128 number_of(const ckks::ParameterFacts& facts, std::span<const std::uint64_t> half,
                               std::size_t coefficient) {
  ring::UInt128 number = half[coefficient];
  if (facts.primes.size() == 2) {
    number += static_cast<ring::UInt128>(facts.primes[0]) * half[facts.degree + coefficient];
  }
  return number % modulus_of(facts);
}

// The same for all coefficients of ciphertexts, those of c0 then those of c1.
inline std::vector<ring::UInt128> numbers_of(const ckks::ParameterFacts& facts,
                                             std::span<const std::uint64_t> digits) {
  std::vector<ring::UInt128> numbers;
  const std::size_t half_words = facts.block_words() / 2;
  for (; !digits.empty(); digits = digits.subspan(half_words)) {
    for (std::size_t i = 0; i < facts.degree; ++i) numbers.push_back(number_of(facts, digits, i));
  }
  return numbers;
}

}  // namespace shieldfl::tests
