#include "selection/score_ranking.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "common/error.h"
#include "mask/words.h"
#include "parallel/parallel_for.h"
#include "selection/first_refused.h"

namespace shieldfl::selection {
namespace {

// The buckets of one pass stay in the nearest caches. It covers the exponent of either type, so that the
// significands of a bucket have one exponent.
constexpr int kDigitBits = 11;

[[noreturn]] void fail_changed() {
  throw Error(ErrorCode::kInternal, "the scores changed while they were read: keep other threads from them");
}

}  // namespace

template <typename T>
ScoreRanking<T>::ScoreRanking(std::span<const T> scores, std::size_t threads)
    : scores_(scores), threads_(threads) {
  mask::check_size(scores.size());
  const std::size_t refused = first_refused(scores, threads, ScoreKey<T>::is_valid);
  if (refused != scores.size()) {
    throw Error(ErrorCode::kRange, "the score at position " + std::to_string(refused) +
                                       " is NaN, infinite or negative: scores are finite and at least 0");
  }
  constexpr int kLowestBit = ScoreKey<T>::kBits - kDigitBits;
  buckets_ = tally(0, ScoreKey<T>::kBits, kLowestBit);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    extend(all_, buckets_[b], static_cast<Key>(b) << kLowestBit);
  }
}

template <typename T>
auto ScoreRanking<T>::tally(Key known, int known_bits, int lowest_bit) const -> std::vector<Bucket> {
  const std::size_t size = std::size_t{1} << (known_bits - lowest_bit);
  std::vector<Bucket> buckets(size);
  std::mutex mutex;
  parallel_for(scores_.size(), threads_, kGrainPositions, [&](std::size_t begin, std::size_t end) {
    std::vector<Bucket> part(size);
    for (const T score : scores_.subspan(begin, end - begin)) {
      const Key key = ScoreKey<T>::of(score);
      if (key >> known_bits != known) continue;
      Bucket& bucket = part[(key >> lowest_bit) & (size - 1)];
      const std::uint64_t significand = ScoreKey<T>::significand(key);
      ++bucket.count;
      bucket.low_halves += significand & 0xffffffff;
      bucket.high_halves += significand >> 32;
    }
    const std::lock_guard lock(mutex);
    for (std::size_t b = 0; b < size; ++b) {
      buckets[b].count += part[b].count;
      buckets[b].low_halves += part[b].low_halves;
      buckets[b].high_halves += part[b].high_halves;
    }
  });
  return buckets;
}

template <typename T>
void ScoreRanking<T>::extend(Leading& leading, const Bucket& bucket, Key key) {
  leading.count += bucket.count;
  leading.sum.add(bucket.low_halves, ScoreKey<T>::exponent(key));
  leading.sum.add(bucket.high_halves, ScoreKey<T>::exponent(key) + 32);
}

template <typename T>
std::uint64_t ScoreRanking<T>::count_from(Key least) const {
  std::uint64_t count = 0;
  std::mutex mutex;
  parallel_for(scores_.size(), threads_, kGrainPositions, [&](std::size_t begin, std::size_t end) {
    std::uint64_t part = 0;
    for (const T score : scores_.subspan(begin, end - begin)) part += ScoreKey<T>::of(score) >= least ? 1 : 0;
    const std::lock_guard lock(mutex);
    count += part;
  });
  return count;
}

template <typename T>
auto ScoreRanking<T>::shortest(const std::function<bool(const Leading&)>& suffices) const -> Cut {
  Leading before;
  Key known = 0;
  int lowest_bit = ScoreKey<T>::kBits - kDigitBits;
  std::vector<Bucket> buckets = buckets_;
  std::size_t found = 0;
  for (;;) {
    for (found = buckets.size(); found-- > 0;) {
      if (buckets[found].count == 0) continue;
      Leading with = before;
      extend(with, buckets[found], (known + static_cast<Key>(found)) << lowest_bit);
      if (suffices(with)) break;
      before = with;
    }
    if (found >= buckets.size()) fail_changed();
    known += static_cast<Key>(found);
    if (lowest_bit == 0) break;
    const int known_bits = lowest_bit;
    lowest_bit = std::max(lowest_bit - kDigitBits, 0);
    buckets = tally(known, known_bits, lowest_bit);
    known <<= known_bits - lowest_bit;
  }

  // What is left has one score.
  const auto with_ties = [&](std::uint64_t ties) {
    Leading with = before;
    with.count += ties;
    ExactSum score;
    score.add(ScoreKey<T>::significand(known), ScoreKey<T>::exponent(known));
    with.sum.add(score.times(ties));
    return with;
  };
  std::uint64_t too_few = 0;
  std::uint64_t enough = buckets[found].count;
  while (enough - too_few > 1) {
    const std::uint64_t middle = too_few + (enough - too_few) / 2;
    (suffices(with_ties(middle)) ? enough : too_few) = middle;
  }
  return {with_ties(enough), known, enough};
}

template <typename T>
std::uint64_t ScoreRanking<T>::end_of_ties(Key key, std::uint64_t ties) const {
  std::vector<std::uint64_t> counts((scores_.size() + kGrainPositions - 1) / kGrainPositions);
  const auto is_tie = [key](T score) { return ScoreKey<T>::of(score) == key; };
  parallel_for(counts.size(), threads_, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      const auto scores = scores_.subspan(block * kGrainPositions);
      std::uint64_t count = 0;
      for (const T score : scores.first(std::min(scores.size(), kGrainPositions))) {
        count += is_tie(score) ? 1 : 0;
      }
      counts[block] = count;
    }
  });
  std::size_t block = 0;
  for (; block < counts.size() && counts[block] < ties; ++block) ties -= counts[block];
  std::size_t position = block * kGrainPositions;
  for (; position < scores_.size() && ties != 0; ++position) ties -= is_tie(scores_[position]) ? 1 : 0;
  if (ties != 0) fail_changed();
  return position;
}

template <typename T>
mask::Bitset ScoreRanking<T>::positions_before(const Cut& cut) const {
  const std::uint64_t ties_end = end_of_ties(cut.key, cut.ties);
  mask::WordVector words(mask::words_for(scores_.size()));
  parallel_for(scores_.size(), threads_, kGrainPositions, [&](std::size_t begin, std::size_t end) {
    for (std::size_t first = begin; first < end; first += mask::kWordBits) {
      const std::size_t length = std::min<std::size_t>(mask::kWordBits, end - first);
      std::uint64_t word = 0;
      for (std::size_t i = 0; i < length; ++i) {
        // The ties that are left out need one more than the key.
        const Key least = cut.key + (first + i < ties_end ? 0 : 1);
        word |= std::uint64_t{ScoreKey<T>::of(scores_[first + i]) >= least} << i;
      }
      words[first / mask::kWordBits] = word;
    }
  });
  return mask::Bitset::from_words(std::move(words), scores_.size());
}

template class ScoreRanking<float>;
template class ScoreRanking<double>;

}  // namespace shieldfl::selection
