// Positions in falling order of their scores, equal ones in rising order of position, without sorting them.
//
// A histogram of the scores' leading bits finds the bucket that a question's answer lies in, one of the next
// bits the bucket within it, until one score is left. Each takes a pass over the scores and a fixed amount of
// memory, however the scores are distributed; no result depends on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mask/bitset.h"
#include "selection/exact_sum.h"
#include "selection/score_key.h"

namespace shieldfl::selection {

// The first `count` positions of a ranking and the sum of their scores.
struct Leading {
  std::uint64_t count = 0;
  ExactSum sum;
};

// T is float or double. Refers to the scores, which must outlive the ranking and stay as they are.
template <typename T>
class ScoreRanking {
 public:
  using Key = typename ScoreKey<T>::Key;

  // Where a ranking is cut: after `ties` of the positions whose score has the key `key`.
  struct Cut {
    Leading leading;
    Key key;
    std::uint64_t ties;
  };

  // `threads`: at least 1. Throws Error(kParameter) for more than mask::kMaxPositions scores, Error(kRange),
  // naming the first such position, for one that is NaN, infinite or negative.
  ScoreRanking(std::span<const T> scores, std::size_t threads);

  // All positions.
  [[nodiscard]] const Leading& all() const noexcept { return all_; }
  // How many scores have this key or a higher one.
  [[nodiscard]] std::uint64_t count_from(Key least) const;
  // The shortest leading part that suffices. Where one suffices, so must all longer ones; the empty one must
  // not, and all() must.
  [[nodiscard]] Cut shortest(const std::function<bool(const Leading&)>& suffices) const;
  // The positions before the cut.
  [[nodiscard]] mask::Bitset positions_before(const Cut& cut) const;

 private:
  // Scores that share their leading bits. Their significands are summed in halves: 2^31 of them fit.
  struct Bucket {
    std::uint64_t count = 0;
    std::uint64_t low_halves = 0;
    std::uint64_t high_halves = 0;
  };

  // Keys `key` with key >> known_bits == known, by their bits from `lowest_bit` up to known_bits.
  [[nodiscard]] std::vector<Bucket> tally(Key known, int known_bits, int lowest_bit) const;
  static void extend(Leading& leading, const Bucket& bucket, Key key);
  // The position after the first `ties` of those with this key.
  [[nodiscard]] std::uint64_t end_of_ties(Key key, std::uint64_t ties) const;

  std::span<const T> scores_;
  std::size_t threads_;
  std::vector<Bucket> buckets_;  // by the highest kDigitBits of the keys
  Leading all_;
};

}  // namespace shieldfl::selection
