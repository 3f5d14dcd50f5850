// The sizes, densities and instruction sets that the tests of masks go through, and random masks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "common/cpu_features.h"
#include "mask/bitset.h"
#include "mask/word_vector.h"
#include "mask/words.h"

namespace shieldfl::tests {

using Bools = std::vector<std::uint8_t>;  // 0 or 1 per position

inline constexpr std::array<std::size_t, 13> kSizes = {0,   1,    2,    63,   64,   65,  127,
                                                       128, 1000, 4095, 4096, 4097, 4099};
inline constexpr std::array<double, 11> kDensities = {0.0, 0.001, 0.01, 0.1,  0.3, 0.4,
                                                      0.5, 0.65,  0.9,  0.99, 1.0};

inline Bools random_bools(std::size_t size, double density, std::mt19937_64& generator) {
  std::bernoulli_distribution chosen(density);
  Bools bools(size);
  for (std::uint8_t& value : bools) value = chosen(generator) ? 1 : 0;
  return bools;
}

inline mask::WordVector random_words(std::size_t words, std::mt19937_64& generator) {
  mask::WordVector result(words);
  for (std::uint64_t& word : result) word = generator();
  return result;
}

// A mask of half of the positions, quick to make for large sizes.
inline mask::Bitset random_half(std::size_t size, std::mt19937_64& generator) {
  mask::WordVector words = random_words(mask::words_for(size), generator);
  if (!words.empty()) words.back() &= mask::tail_bits(size);
  return mask::Bitset::from_words(std::move(words), size);
}

// Clients differ in how much they choose, so that every number of votes occurs.
inline std::vector<Bools> random_clients(std::size_t clients, std::size_t size, std::mt19937_64& generator) {
  std::uniform_real_distribution<double> density(0.0, 1.0);
  std::vector<Bools> masks;
  for (std::size_t client = 0; client < clients; ++client) {
    masks.push_back(random_bools(size, density(generator), generator));
  }
  return masks;
}

inline std::vector<const mask::Bitset*> pointers(const std::vector<mask::Bitset>& masks) {
  std::vector<const mask::Bitset*> result;
  for (const mask::Bitset& mask : masks) result.push_back(&mask);
  return result;
}

}  // namespace shieldfl::tests
