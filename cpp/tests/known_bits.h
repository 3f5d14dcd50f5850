// Digests of what fixed seeds lead to, written down: the same for every processor, compiler and instruction
// set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "mask/bitset.h"

namespace shieldfl::tests {

// What something is, and its digest.
using KnownBits = std::vector<std::pair<std::string, std::string>>;

// The first eight bytes of the digest of an array's memory, in hexadecimal digits.
template <std::ranges::contiguous_range Array>
std::string bits_of(const Array& array) {
  const auto bytes = std::as_bytes(std::span(array));
  const Id id = digest({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  char digits[17];
  for (std::size_t i = 0; i < 8; ++i) std::snprintf(digits + 2 * i, 3, "%02x", id[i]);
  return digits;
}

// Fails, with all that was made, unless it is all that is known.
inline void check_known_bits(const std::string& of, const KnownBits& made, const KnownBits& known) {
  if (made == known) return;
  std::string message = of + " has other bits:";
  for (const auto& [what, bits] : made) message += "\n  {\"" + what + "\", \"" + bits + "\"},";
  throw std::runtime_error(message);
}

// Uniform within the limit. Made of integers, since the library's distributions are its own matter.
template <typename T>
std::vector<T> known_values(std::size_t count, double limit, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    const double unit = static_cast<double>(static_cast<std::int64_t>(generator()) >> 11) * 0x1p-52;
    value = static_cast<T>(unit * limit);
  }
  return values;
}

// Chooses about three fifths of the positions.
inline mask::Bitset known_mask(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<std::uint8_t> bools(size);
  for (std::uint8_t& chosen : bools) chosen = generator() % 5 < 3 ? 1 : 0;
  return mask::Bitset::from_bools(bools);
}

}  // namespace shieldfl::tests
