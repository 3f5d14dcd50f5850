// An update as few whole numbers, which are summed: rotated (rotation.h), in steps, each at the nearest
// level.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/random.h"

namespace shieldfl::noise {

struct LevelRange {
  double steps_per_unit;  // steps for 1 of the update
  std::int32_t least;     // the lowest level
  std::int32_t most;      // the highest
};

// The longest update, and the most steps that it may have: its rotation stays within floats.
inline constexpr double kLongestUpdate = 0x1p100;
inline constexpr double kMostSteps = 0x1p120;
// The magnitude of a level, at most: floats of it have all whole numbers, and halves.
inline constexpr std::int32_t kMostLevel = 1 << 20;
// 2^32 over the golden ratio, which spreads its multiples evenly.
inline constexpr std::uint32_t kSignStep = 0x9E3779B1;

// Writes the level of every rotated value to `levels`, which has the size of `update`: the nearest whole
// number of steps, ties to even, brought within the range; where the range is of two levels, the lower one
// for values below 0 and, of zeros, for those at whose position i the highest bit of sign_of_zero + i
// kSignStep is 1. Parts of an update that nothing moves may rotate to zeros: with another number for each
// client, these do not all add up to one sign. Returns the update's L2 norm. Takes no time that depends on
// finite values. Nothing depends on `threads` (0 means threads_for()) or the instruction set.
//
// Throws Error: kParameter for steps that are not positive and finite, and for a range that is empty or
// beyond kMostLevel; kRange for NaN and infinity, and for an update that is too long. Then `levels` is
// unchanged.
double rotate_to_levels(std::span<const float> update, std::span<float> levels, const LevelRange& range,
                        const Seed& rotation_seed, std::uint32_t sign_of_zero, std::size_t threads);

}  // namespace shieldfl::noise
