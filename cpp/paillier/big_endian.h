// Numbers as words, the lowest first, and as bytes, the highest first: how they travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shieldfl::paillier {

// words and bytes are of the same length. Constant-time in the number.
inline void to_big_endian(std::span<const std::uint64_t> words, std::span<std::uint8_t> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[bytes.size() - 1 - i] = static_cast<std::uint8_t>(words[i / 8] >> (8 * (i % 8)));
  }
}

inline void from_big_endian(std::span<const std::uint8_t> bytes, std::span<std::uint64_t> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < 8; ++j) word = (word << 8) | bytes[bytes.size() - 8 * (i + 1) + j];
    words[i] = word;
  }
}

}  // namespace shieldfl::paillier
