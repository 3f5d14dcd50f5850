// Numbers as words, the lowest first, and as bytes, the highest first: how they travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/error.h"

namespace shieldfl::paillier {

// Throws Error(kInternal) unless there are eight bytes for each word.
inline void check_lengths(std::size_t words, std::size_t bytes) {
  if (bytes != words * sizeof(std::uint64_t)) {
    throw Error(ErrorCode::kInternal, "a number and its bytes differ in length");
  }
}

// Constant-time in the number; throws as check_lengths does.
inline void to_big_endian(std::span<const std::uint64_t> words, std::span<std::uint8_t> bytes) {
  check_lengths(words.size(), bytes.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t word = __builtin_bswap64(words[words.size() - 1 - i]);
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
  }
}

inline void from_big_endian(std::span<const std::uint8_t> bytes, std::span<std::uint64_t> words) {
  check_lengths(words.size(), bytes.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
    words[words.size() - 1 - i] = __builtin_bswap64(word);
  }
}

}  // namespace shieldfl::paillier
