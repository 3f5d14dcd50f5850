// Bases of digits with one to four primes, and their numbers as long integers that do not come from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "paillier/big_integer.h"
#include "rlwe/moduli.h"

namespace shieldfl::tests {

using paillier::BigInteger;

// Shortest and longest primes, lengths that differ, for one to four primes of a ring of this degree.
inline std::vector<std::vector<std::uint64_t>> prime_lists(std::size_t degree) {
  std::vector<std::vector<std::uint64_t>> lists;
  for (const std::vector<int>& lengths : std::vector<std::vector<int>>{{50},
                                                                       {25, 26},
                                                                       {50, 50},
                                                                       {24, 25, 25},
                                                                       {49, 50, 50},
                                                                       {50, 50, 50},
                                                                       {24, 24, 24, 24},
                                                                       {40, 41, 41, 41},
                                                                       {49, 49, 50, 50},
                                                                       {50, 50, 50, 50}}) {
    lists.push_back(rlwe::ntt_primes(degree, lengths));
  }
  return lists;
}

inline BigInteger product(std::span<const std::uint64_t> primes) {
  BigInteger product(1);
  for (const std::uint64_t prime : primes) product = product * BigInteger(prime);
  return product;
}

// The number that coefficient i's digits, or sums of digits, stand for; not reduced.
inline BigInteger number_of(std::span<const std::uint64_t> primes, std::span<const std::uint64_t> polynomial,
                            std::size_t i) {
  const std::size_t degree = polynomial.size() / primes.size();
  BigInteger number(0);
  for (std::size_t p = primes.size(); p-- > 0;) {
    number = number * BigInteger(primes[p]) + BigInteger(polynomial[p * degree + i]);
  }
  return number;
}

}  // namespace shieldfl::tests
