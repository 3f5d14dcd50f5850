#include "mask/vote_kernels.h"

#include <algorithm>

#include "mask/words.h"

namespace shieldfl::mask {
namespace {

using Block = std::array<std::uint64_t, kVoteBlockWords>;

struct SumAndCarry {
  std::uint64_t sum;
  std::uint64_t carry;
};

constexpr SumAndCarry full_add(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const std::uint64_t half = a ^ b;
  return {half ^ c, (a & b) | (half & c)};
}

// plane + carry: the sum stays, the carry goes on. Returns whether there is any.
bool add_to_plane(std::uint64_t* __restrict__ plane, std::uint64_t* __restrict__ carry, std::size_t words) {
  std::uint64_t any = 0;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t next = plane[i] & carry[i];
    plane[i] ^= carry[i];
    carry[i] = next;
    any |= next;
  }
  return any != 0;
}

// plane + addend + carry.
void add_to_plane(std::uint64_t* __restrict__ plane, const std::uint64_t* __restrict__ addend,
                  std::uint64_t* __restrict__ carry, std::size_t words) {
  for (std::size_t i = 0; i < words; ++i) {
    const auto [sum, next] = full_add(plane[i], addend[i], carry[i]);
    plane[i] = sum;
    carry[i] = next;
  }
}

void ripple(std::uint64_t* const* planes, std::size_t first, std::size_t plane_count, std::uint64_t* carry,
            std::size_t words) {
  for (std::size_t j = first; j < plane_count; ++j) {
    if (!add_to_plane(planes[j], carry, words)) return;
  }
}

// Seven bits of one weight become one of each of the weights 1, 2 and 4.
void compress_seven(const std::array<const std::uint64_t*, kVotesAtOnce>& masks,
                    std::uint64_t* __restrict__ ones, std::uint64_t* __restrict__ twos,
                    std::uint64_t* __restrict__ fours, std::size_t words) {
  const auto [a, b, c, d, e, f, g] = masks;
  for (std::size_t i = 0; i < words; ++i) {
    const SumAndCarry first = full_add(a[i], b[i], c[i]);
    const SumAndCarry second = full_add(d[i], e[i], f[i]);
    const SumAndCarry third = full_add(first.sum, second.sum, g[i]);
    const SumAndCarry upper = full_add(first.carry, second.carry, third.carry);
    ones[i] = third.sum;
    twos[i] = upper.sum;
    fours[i] = upper.carry;
  }
}

}  // namespace

void add_vote(std::uint64_t* const* planes, std::size_t plane_count, const std::uint64_t* mask,
              std::size_t words) {
  Block carry;
  std::copy_n(mask, words, carry.data());
  ripple(planes, 0, plane_count, carry.data(), words);
}

void add_seven_votes(std::uint64_t* const* planes, std::size_t plane_count,
                     const std::array<const std::uint64_t*, kVotesAtOnce>& masks, std::size_t words) {
  Block carry;
  Block twos;
  Block fours;
  compress_seven(masks, carry.data(), twos.data(), fours.data(), words);
  // Planes that are missing would only ever hold zeros: the caller provides planes enough for the sum.
  if (plane_count > 0) add_to_plane(planes[0], carry.data(), words);
  if (plane_count > 1) add_to_plane(planes[1], twos.data(), carry.data(), words);
  if (plane_count > 2) add_to_plane(planes[2], fours.data(), carry.data(), words);
  ripple(planes, 3, plane_count, carry.data(), words);
}

void counters_at_least(const std::uint64_t* const* planes, std::size_t plane_count, std::uint64_t threshold,
                       std::uint64_t* out, std::size_t words) {
  // From the low bits up: so far "at least" where equal; a higher bit overrules where it differs.
  std::fill_n(out, words, kAllOnes);
  for (std::size_t j = 0; j < plane_count; ++j) {
    const std::uint64_t* const plane = planes[j];
    if (((threshold >> j) & 1) != 0) {
      for (std::size_t i = 0; i < words; ++i) out[i] &= plane[i];
    } else {
      for (std::size_t i = 0; i < words; ++i) out[i] |= plane[i];
    }
  }
}

void read_counters(const std::uint64_t* const* planes, std::size_t plane_count, std::uint32_t* out,
                   std::size_t positions) {
  for (std::size_t first = 0; first < positions; first += 8) {
    const std::size_t word = first / kWordBits;
    const std::size_t shift = first % kWordBits;
    std::array<std::uint32_t, 8> counters{};
    // Eight counters at a time, eight of their bits at a time.
    for (std::size_t base = 0; base < plane_count; base += 8) {
      std::uint64_t bytes = 0;
      for (std::size_t j = base; j < std::min(plane_count, base + 8); ++j) {
        bytes |= bits_to_bytes((planes[j][word] >> shift) & 0xff) << (j - base);
      }
      for (std::size_t i = 0; i < 8; ++i) {
        counters[i] |= static_cast<std::uint32_t>((bytes >> (8 * i)) & 0xff) << base;
      }
    }
    std::copy_n(counters.data(), std::min<std::size_t>(8, positions - first), out + first);
  }
}

}  // namespace shieldfl::mask
