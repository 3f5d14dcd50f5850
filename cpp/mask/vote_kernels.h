// Bit-sliced counting, one block of words at a time: 64 counters lie across the planes, plane j holding bit j
// of each.
//
// `planes` points to plane_count blocks of `words` words, least significant first; plane_count is at most
// kMaxPlanes. Blocks may not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::mask {

// A block of each of a few planes stays in the first-level cache.
inline constexpr std::size_t kVoteBlockWords = 256;
// What a thread must have to do before it is worth its start.
inline constexpr std::size_t kVoteGrainWords = 64 * kVoteBlockWords;
// Counters of 32 bits.
inline constexpr std::size_t kMaxPlanes = 32;

struct VoteKernels {
  // Adds one mask's block. The caller provides planes enough: no counter may overflow.
  void (*add_vote)(std::uint64_t* const* planes, std::size_t plane_count, const std::uint64_t* mask,
                   std::size_t words);
  // Sets the bits of `out` whose counters are at least `threshold`, which is below 2^plane_count.
  void (*counters_at_least)(const std::uint64_t* const* planes, std::size_t plane_count,
                            std::uint64_t threshold, std::uint64_t* out, std::size_t words);
  // Sets the bits of `out` that are set in at least `threshold` of the masks' blocks, each of which begins
  // `first_word` words into its mask. mask_count is below 2^kMaxPlanes and `threshold` at most mask_count.
  void (*chosen_by)(const std::uint64_t* const* masks, std::size_t mask_count, std::size_t first_word,
                    std::uint64_t threshold, std::uint64_t* out, std::size_t words);
  // personalised = local and not encrypted, noise = neither. Returns the bits set in `personalised`.
  std::uint64_t (*split)(const std::uint64_t* local, const std::uint64_t* encrypted,
                         std::uint64_t* personalised, std::uint64_t* noise, std::size_t words);
};

extern const VoteKernels kVoteKernelsScalar;
extern const VoteKernels kVoteKernelsNeon;    // on 64-bit ARM alone
extern const VoteKernels kVoteKernelsAvx2;    // on x86-64 alone
extern const VoteKernels kVoteKernelsAvx512;  // on x86-64 alone

// The kernels of a set that this processor has.
const VoteKernels& vote_kernels(InstructionSet set);

}  // namespace shieldfl::mask
