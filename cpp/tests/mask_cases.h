// The sizes and densities that every test of masks goes through, and random masks of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace shieldfl::tests {

using Bools = std::vector<std::uint8_t>;  // 0 or 1 per position

inline constexpr std::array<std::size_t, 11> kSizes = {0, 1, 2, 63, 64, 65, 127, 128, 1000, 4096, 4099};
inline constexpr std::array<double, 11> kDensities = {0.0, 0.001, 0.01, 0.1,  0.3, 0.4,
                                                      0.5, 0.65,  0.9,  0.99, 1.0};

inline Bools random_bools(std::size_t size, double density, std::mt19937_64& generator) {
  std::bernoulli_distribution chosen(density);
  Bools bools(size);
  for (std::uint8_t& value : bools) value = chosen(generator) ? 1 : 0;
  return bools;
}

}  // namespace shieldfl::tests
