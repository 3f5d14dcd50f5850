// The fewest positions to mask for a bound on the mutual information, in a fixed order of masking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "selection/mutual_information.h"

namespace shieldfl::selection {

// Masks positions in falling order of their scores, equal ones in rising order of position, and returns how
// many it takes until information_bits is at most `limit_bits`, which is not negative: every shorter part of
// the order leaves more, to the precision of a double. `threads`: at least 1; the result does not depend on
// it. Requires a score for every weight, valid as ScoreRanking checks them.
template <typename T>
std::uint64_t fewest_masked(const WeightHistogram<T>& weights, std::span<const T> scores, double limit_bits,
                            std::size_t threads);

}  // namespace shieldfl::selection
