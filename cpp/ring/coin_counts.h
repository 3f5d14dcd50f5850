// The centred binomial by arithmetic on words alone, for the instruction-set files of sampler_kernels.h:
// everything here has internal linkage, so each of them compiles a version of its own. `Words` is a 64-bit
// word or a vector of them.
#pragma once

#include <cstdint>

#include "ring/sampler_kernels.h"

namespace shieldfl::ring {
namespace {

// `bits` in each of the three 21-bit fields.
constexpr std::uint64_t in_each_field(std::uint64_t bits) {
  return bits | bits << kErrorCoins | bits << 2 * kErrorCoins;
}

// All words' bit 63 is ignored. In byte j (j < 3) of each word: kErrorCoins + popcount of field j of x -
// popcount of field j of y. The other bytes are 0. A field is seven triples of bits, which are counted first.
template <typename Words>
inline Words shifted_differences(Words x, Words y) {
  static_assert(kErrorCoins == 21);
  constexpr std::uint64_t kOnes = in_each_field(0b001'001'001'001'001'001'001);
  constexpr std::uint64_t kPairs = 3 * kOnes;
  // A triple's bits 4 a + 2 b + c less 2 a + b and less a are a + b + c. That of x is at least 0 and that of
  // y at most 3, so with 3 added to their difference no triple borrows of its neighbour.
  const Words x_triples = x - ((x >> 1) & kPairs) - ((x >> 2) & kOnes);
  const Words y_triples = y - ((y >> 1) & kPairs) - ((y >> 2) & kOnes);
  const Words triples = x_triples + kPairs - y_triples;  // 0 to 6 each
  // Triples 1, 3 and 5 of each field on top of 0, 2 and 4; triple 6 stays alone: 12 + 12 + 12 + 6.
  constexpr std::uint64_t kEven = in_each_field(0b111'000'111'000'111'000'111);
  constexpr std::uint64_t kOdd = in_each_field(0b000'000'111'000'111'000'111);
  const Words sixes = (triples & kEven) + ((triples >> 3) & kOdd);
  // 4 on top of 0 and 6 on top of 2, then the two that are left on each other.
  const Words halves = sixes + ((sixes >> 12) & in_each_field(0b000'111'111'111));
  constexpr std::uint64_t kSix = in_each_field(0b111'111);
  const Words sums = (halves & kSix) + ((halves >> 6) & kSix);
  constexpr std::uint64_t kByte = 0xff;
  return (sums & kByte) | ((sums >> 13) & (kByte << 8)) | ((sums >> 26) & (kByte << 16));
}

}  // namespace
}  // namespace shieldfl::ring
