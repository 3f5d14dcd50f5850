// Which positions a client encrypts (SenseCrypt, section 3.3, eqs. 4 to 9), solved exactly.
//
// The scalarised problem is: minimise cost_weight * k / P - gain_weight * (share of the scores' sum), k being
// the number of chosen positions out of P. Of all sets of k positions the first k of the ranking by score
// have the largest sum, so for every k they are the best, and the objective over k is convex: the best k
// takes every position whose gain is above its cost, and under limits on k the nearest k to that. Budget (eq.
// 6) and security (eq. 7) are limits on k for any set that is best for its k. The mutual information (eq. 8)
// depends on which positions are chosen; it is bounded for the first k of the ranking, where it does not rise
// with k.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mask/bitset.h"

namespace shieldfl::selection {

struct SelectionLimits {
  double budget = 1.0;  // alpha of eq. 6: the share of all positions that may be chosen, in (0, 1]
  // C > 0 and B > 0 of eq. 7: the chosen have at least a share of 1 - C e^(-B budget) of the scores' sum,
  // which must be in [0, 1].
  double exposed_share = 0.7;
  double exposure_decay = 1.3;
  double information_bits = 2.0;  // eta_MI of eq. 8, at least 0; infinity for no bound
  std::size_t bins = 256;         // of the estimate: see mutual_information.h
  double cost_weight = 1.0;       // beta_1 > 0
  double gain_weight = 1.0;       // beta_2 > 0
};

// The largest k with k / size <= budget, both sides in double precision: floor(budget * size) but for the
// rounding of the product (0.29 * 100 comes out a little below 29). Throws Error(kParameter) unless 0 <
// budget <= 1.
std::uint64_t positions_in_budget(double budget, std::uint64_t size);

// mask.count() is the best count, raised to what security and information need; where the budget is below
// that, it is the budget.
struct Selection {
  mask::Bitset mask;
  std::uint64_t best_count = 0;         // of the scalarised problem without limits
  std::uint64_t security_count = 0;     // the fewest that eq. 7 allows
  std::uint64_t information_count = 0;  // the fewest that eq. 8 allows
  std::uint64_t budget_count = 0;       // the most that eq. 6 allows
  double required_share = 0.0;          // the right-hand side of eq. 7
  double share = 0.0;                   // of the scores' sum that is chosen; 1 where all scores are 0
  double information_bits = 0.0;        // I(W; masked W) with this mask
};

// For T = float or double. Where all scores are 0 there is nothing to protect: security is met by the empty
// mask, and only the mutual information chooses positions, the first ones. Sums of scores are compared
// without rounding. `threads`: 0 means all cores; the result does not depend on it.
//
// Throws Error: kParameter for no scores, more than mask::kMaxPositions, another number of weights, and
// limits outside the ranges above; kRange, naming the first such position, for a score that is NaN, infinite
// or negative and for a weight that is NaN or infinite.
template <typename T>
Selection select(std::span<const T> scores, std::span<const T> weights, const SelectionLimits& limits,
                 std::size_t threads = 0);

// The k positions with the highest scores; of equal scores the lower positions. Throws Error(kParameter)
// where k is above the number of scores, and what select throws for scores but that there may be none.
template <typename T>
mask::Bitset top_k(std::span<const T> scores, std::uint64_t k, std::size_t threads = 0);

}  // namespace shieldfl::selection
