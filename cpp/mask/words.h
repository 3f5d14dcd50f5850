// Sets of positions as 64-bit words: position i is bit i % 64 of word i / 64.
//
// Plain C++20 that compiles to no call: without -mpopcnt, std::popcount would be one.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace shieldfl::mask {

inline constexpr std::uint64_t kWordBits = 64;
inline constexpr std::uint64_t kAllOnes = ~std::uint64_t{0};

constexpr std::uint64_t words_for(std::uint64_t size) {
  return size / kWordBits + (size % kWordBits != 0);
}

// The bits of the last of words_for(size) words that stand for positions; the others are padding.
constexpr std::uint64_t tail_bits(std::uint64_t size) {
  return size % kWordBits == 0 ? kAllOnes : (std::uint64_t{1} << (size % kWordBits)) - 1;
}

constexpr std::uint64_t count_bits(std::uint64_t word) {
  word -= (word >> 1) & 0x5555555555555555;
  word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return (word * 0x0101010101010101) >> 56;
}

constexpr std::uint64_t count_bits(std::span<const std::uint64_t> words) {
  std::uint64_t count = 0;
  for (const std::uint64_t word : words) count += count_bits(word);
  return count;
}

// Bit i becomes byte i, 0 or 1.
constexpr std::uint64_t bits_to_bytes(std::uint64_t eight_bits) {
  const std::uint64_t picked = (eight_bits * 0x0101010101010101) & 0x8040201008040201;
  return ((picked + 0x7f7f7f7f7f7f7f7f) >> 7) & 0x0101010101010101;
}

// Byte i becomes bit i: 1 unless the byte is zero.
constexpr std::uint64_t bytes_to_bits(std::uint64_t eight_bytes) {
  const std::uint64_t any_low = (eight_bytes & 0x7f7f7f7f7f7f7f7f) + 0x7f7f7f7f7f7f7f7f;
  const std::uint64_t ones = ((any_low | eight_bytes) >> 7) & 0x0101010101010101;
  return (ones * 0x0102040810204080) >> 56;
}

// Calls visit(position) for the set bits of `word` in ascending order; bit 0 is position `first`.
template <typename Visit>
constexpr void for_each_bit(std::uint64_t word, std::uint64_t first, Visit&& visit) {
  for (; word != 0; word &= word - 1) visit(first + static_cast<std::uint64_t>(std::countr_zero(word)));
}

}  // namespace shieldfl::mask
