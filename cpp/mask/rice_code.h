// Rice codes for the gaps of an ascending list of positions (Rice, 1979): near the entropy of a random sparse
// set.
//
// The gap before a position is the number of positions skipped since the one before. A gap g is written, low
// bit first, as g >> log2_divisor zeros, a one, and the low log2_divisor bits of g.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shieldfl::mask {

// More never pays for kMaxPositions positions.
inline constexpr unsigned kMaxLog2Divisor = 31;

// The most bits that `count` codes out of `size` positions can take, whichever positions they are.
std::uint64_t rice_bits_bound(std::uint64_t size, std::uint64_t count, unsigned log2_divisor);

// The divisor with the smallest bound; the smaller one of two that are equal. 0 for an empty list.
unsigned rice_log2_divisor(std::uint64_t size, std::uint64_t count);

struct RiceCode {
  std::vector<std::uint64_t> words;
  std::size_t bytes = 0;  // used of the words; what is left of the last byte is zero
};

// Codes the set bits of `words`, or with `complement` the clear ones, among `size` positions; `count` is
// their number and log2_divisor at most kMaxLog2Divisor.
RiceCode rice_encode(std::span<const std::uint64_t> words, std::uint64_t size, std::uint64_t count,
                     bool complement, unsigned log2_divisor);

// Sets the bits of `count` coded positions in `words`, which holds words_for(size) zeros. Throws
// Error(kWireFormat) where the code ends early, leaves the `size` positions, or is followed by a byte or a
// set bit that belongs to none. Its time is bounded by the code's length and `count`.
void rice_decode(std::span<const std::uint8_t> code, std::uint64_t size, std::uint64_t count,
                 unsigned log2_divisor, std::span<std::uint64_t> words);

}  // namespace shieldfl::mask
