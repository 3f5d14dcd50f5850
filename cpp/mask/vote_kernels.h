// Bit-sliced counting, one block of words at a time: 64 counters lie across the planes, plane j holding bit j
// of each. Everything else about votes is in votes.h; versions per instruction set replace these functions
// alone.
//
// `planes` points to plane_count blocks of `words` words, least significant first. Blocks may not overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace shieldfl::mask {

// The planes of a block this long stay in the first-level cache.
inline constexpr std::size_t kVoteBlockWords = 256;

inline constexpr std::size_t kVotesAtOnce = 7;

// Adds one mask's block, words <= kVoteBlockWords. The caller provides planes enough: no counter may
// overflow.
void add_vote(std::uint64_t* const* planes, std::size_t plane_count, const std::uint64_t* mask,
              std::size_t words);

// Adds seven at once in about the time of two.
void add_seven_votes(std::uint64_t* const* planes, std::size_t plane_count,
                     const std::array<const std::uint64_t*, kVotesAtOnce>& masks, std::size_t words);

// Sets the bits of `out` whose counters are at least `threshold`, which is below 2^plane_count.
void counters_at_least(const std::uint64_t* const* planes, std::size_t plane_count, std::uint64_t threshold,
                       std::uint64_t* out, std::size_t words);

// Writes the first `positions` counters; plane_count is at most 32. Planes have words_for(positions) words.
void read_counters(const std::uint64_t* const* planes, std::size_t plane_count, std::uint32_t* out,
                   std::size_t positions);

}  // namespace shieldfl::mask
