#include "selection/mutual_information_search.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "common/verify.h"
#include "parallel/parallel_for.h"
#include "selection/first_refused.h"
#include "selection/score_key.h"

namespace shieldfl::selection {
namespace {

// A table of counts by row and bin stays in the second-level cache.
constexpr int kLog2TableEntries = 16;
constexpr int kMostDigitBits = 8;

// Rows are consecutive parts of the order. Finds by halving the one that the answer lies in, and goes on with
// its positions alone.
template <typename T>
class Search {
 public:
  Search(const WeightHistogram<T>& weights, double limit_bits, std::size_t threads)
      : weights_(weights),
        limit_bits_(limit_bits),
        threads_(threads),
        digit_bits_(std::clamp(kLog2TableEntries - static_cast<int>(std::bit_width(weights.bins() - 1)), 1,
                               kMostDigitBits)),
        masked_(weights.bins()),
        with_(weights.bins()) {}

  [[nodiscard]] int digit_bits() const { return digit_bits_; }
  // Whether one position is left: the last that has to be masked.
  [[nodiscard]] bool is_over() const { return candidates_ <= 1; }
  // How many positions are certain to be masked.
  [[nodiscard]] std::uint64_t masked_count() const {
    return std::accumulate(masked_.begin(), masked_.end(), std::uint64_t{0});
  }
  [[nodiscard]] bool suffices(std::span<const std::uint64_t> masked) const {
    return weights_.information_bits(masked) <= limit_bits_;
  }
  [[nodiscard]] bool none_suffices() const { return suffices(masked_); }

  // `row_of` gives the row of a position in [begin, end): below `rows` unless it is no candidate.
  template <typename RowOf>
  std::size_t narrow(std::size_t begin, std::size_t end, std::size_t rows, RowOf row_of) {
    std::vector<std::uint32_t> up_to = counts(begin, end, rows, row_of);
    const std::size_t bins = masked_.size();
    for (std::size_t i = bins; i < up_to.size(); ++i) up_to[i] += up_to[i - bins];

    const auto row = [&](std::size_t r) { return std::span(up_to).subspan(r * bins, bins); };
    std::size_t found = 0;
    for (std::size_t last = rows - 1; found < last;) {
      const std::size_t middle = found + (last - found) / 2;
      std::ranges::transform(masked_, row(middle), with_.begin(), std::plus<std::uint64_t>());
      if (suffices(with_)) {
        last = middle;
      } else {
        found = middle + 1;
      }
    }
    const auto sum = [](auto counts) {
      return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    };
    candidates_ = sum(row(found));
    if (found > 0) {
      candidates_ -= sum(row(found - 1));
      std::ranges::transform(masked_, row(found - 1), masked_.begin(), std::plus<std::uint64_t>());
    }
    return found;
  }

 private:
  template <typename RowOf>
  std::vector<std::uint32_t> counts(std::size_t begin, std::size_t end, std::size_t rows,
                                    RowOf row_of) const {
    const std::size_t bins = masked_.size();
    std::vector<std::uint32_t> table(rows * bins);
    std::mutex mutex;
    parallel_for(end - begin, threads_, kGrainPositions, [&](std::size_t first, std::size_t last) {
      std::vector<std::uint32_t> part(rows * bins);
      for (std::size_t position = begin + first; position < begin + last; ++position) {
        const std::size_t row = row_of(position);
        if (row < rows) ++part[row * bins + weights_.bin_at(position)];
      }
      const std::lock_guard lock(mutex);
      std::ranges::transform(table, part, table.begin(), std::plus<std::uint32_t>());
    });
    return table;
  }

  const WeightHistogram<T>& weights_;
  double limit_bits_;
  std::size_t threads_;
  int digit_bits_;
  std::uint64_t candidates_ = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> masked_;
  std::vector<std::uint64_t> with_;
};

}  // namespace

template <typename T>
std::uint64_t fewest_masked(const WeightHistogram<T>& weights, std::span<const T> scores, double limit_bits,
                            std::size_t threads) {
  VERIFY(limit_bits >= 0.0 && threads >= 1);
  using Key = typename ScoreKey<T>::Key;
  Search<T> search(weights, limit_bits, threads);
  if (search.none_suffices()) return 0;

  // The digits of the scores' keys, from the highest.
  Key known = 0;
  for (int lowest_bit = ScoreKey<T>::kBits; lowest_bit > 0 && !search.is_over();) {
    const int digit_bits = std::min(search.digit_bits(), lowest_bit);
    lowest_bit -= digit_bits;
    known <<= digit_bits;
    const std::size_t rows = std::size_t{1} << digit_bits;
    const Key highest = known + static_cast<Key>(rows - 1);
    // A key outside of [known, highest] wraps around to a row that is not there.
    const std::size_t row = search.narrow(0, scores.size(), rows, [&](std::size_t position) {
      return static_cast<std::size_t>(highest - (ScoreKey<T>::of(scores[position]) >> lowest_bit));
    });
    known = highest - static_cast<Key>(row);
  }
  // Those of the positions with that score, in parts of the range they are known to lie in.
  std::size_t begin = 0;
  for (int lowest_bit = static_cast<int>(std::bit_width(scores.size()));
       lowest_bit > 0 && !search.is_over();) {
    const std::size_t end = std::min(begin + (std::size_t{1} << lowest_bit), scores.size());
    const int digit_bits = std::min(search.digit_bits(), lowest_bit);
    lowest_bit -= digit_bits;
    const std::size_t rows = std::size_t{1} << digit_bits;
    const std::size_t row = search.narrow(begin, end, rows, [&](std::size_t position) {
      return ScoreKey<T>::of(scores[position]) == known ? (position - begin) >> lowest_bit : rows;
    });
    begin += row << lowest_bit;
  }
  return search.masked_count() + 1;
}

template std::uint64_t fewest_masked(const WeightHistogram<float>&, std::span<const float>, double,
                                     std::size_t);
template std::uint64_t fewest_masked(const WeightHistogram<double>&, std::span<const double>, double,
                                     std::size_t);

}  // namespace shieldfl::selection
