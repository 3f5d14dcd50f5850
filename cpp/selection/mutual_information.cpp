#include "selection/mutual_information.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>

#include "common/error.h"
#include "mask/words.h"
#include "parallel/parallel_for.h"
#include "selection/first_refused.h"

namespace shieldfl::selection {
namespace {

// A(c) of mutual_information.h; the count of bin `fixed_bin` is `fixed_count`.
double pooled_bits(std::span<const std::uint64_t> counts, std::size_t fixed_bin, std::uint64_t fixed_count) {
  const std::uint64_t pool =
      std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) - counts[fixed_bin] + fixed_count;
  double bits = 0.0;
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    const auto count = static_cast<double>(bin == fixed_bin ? fixed_count : counts[bin]);
    if (count != 0.0) bits += count * std::log2(static_cast<double>(pool) / count);
  }
  return bits;
}

}  // namespace

template <typename T>
WeightHistogram<T>::WeightHistogram(std::span<const T> weights, std::size_t bins, std::size_t threads)
    : weights_(weights), threads_(threads), last_bin_(static_cast<double>(bins) - 1.0) {
  mask::check_size(weights.size());
  if (weights.empty()) {
    throw Error(ErrorCode::kParameter, "there are no weights: pass a vector with at least one");
  }
  if (bins < 1 || bins > kMostBins) {
    throw Error(ErrorCode::kParameter, "the bins must be between 1 and " + std::to_string(kMostBins));
  }
  const std::size_t refused = first_refused(
      weights, threads, [](T weight) { return std::abs(weight) <= std::numeric_limits<T>::max(); });
  if (refused != weights.size()) {
    throw Error(ErrorCode::kRange,
                "the weight at position " + std::to_string(refused) + " is NaN or infinite: it has no bin");
  }
  totals_.resize(bins);
  set_range();
  zero_bin_ = bin_of(T{0});
  totals_ = masked_per_bin(mask::Bitset::full(weights.size()));
  total_bits_ = pooled_bits(totals_, zero_bin_, totals_[zero_bin_]);
}

template <typename T>
void WeightHistogram<T>::set_range() {
  T lowest = 0;
  T highest = 0;
  std::mutex mutex;
  parallel_for(weights_.size(), threads_, kGrainPositions, [&](std::size_t begin, std::size_t end) {
    T least = 0;
    T most = 0;
    for (const T weight : weights_.subspan(begin, end - begin)) {
      least = weight < least ? weight : least;
      most = weight > most ? weight : most;
    }
    const std::lock_guard lock(mutex);
    lowest = std::min(lowest, least);
    highest = std::max(highest, most);
  });
  if (lowest == highest) return;  // all are 0, in bin 0
  constexpr int kMostExponent = 1022;
  const int exponent = std::ilogb(static_cast<double>(std::max(-lowest, highest)));
  unit_ = std::ldexp(1.0, std::min(-exponent, kMostExponent));
  lowest_ = static_cast<double>(lowest) * unit_;
  bins_per_range_ = static_cast<double>(bins()) / (static_cast<double>(highest) * unit_ - lowest_);
}

template <typename T>
std::vector<std::uint64_t> WeightHistogram<T>::masked_per_bin(const mask::Bitset& mask) const {
  mask::check_same_size(mask.size(), size());
  const auto words = mask.words();
  std::vector<std::uint64_t> masked(bins());
  std::mutex mutex;
  parallel_for(words.size(), threads_, kGrainPositions / mask::kWordBits,
               [&](std::size_t begin, std::size_t end) {
                 std::vector<std::uint64_t> part(bins());
                 for (std::size_t w = begin; w < end; ++w) {
                   mask::for_each_bit(words[w], w * mask::kWordBits,
                                      [&](std::uint64_t position) { ++part[bin_at(position)]; });
                 }
                 const std::lock_guard lock(mutex);
                 for (std::size_t bin = 0; bin < part.size(); ++bin) masked[bin] += part[bin];
               });
  return masked;
}

template <typename T>
double WeightHistogram<T>::information_bits(std::span<const std::uint64_t> masked) const {
  const double hidden_bits = pooled_bits(masked, zero_bin_, totals_[zero_bin_]);
  return std::max(0.0, (total_bits_ - hidden_bits) / static_cast<double>(size()));
}

template <typename T>
double mutual_information(std::span<const T> weights, const mask::Bitset& mask, std::size_t bins,
                          std::size_t threads) {
  const WeightHistogram<T> histogram(weights, bins, resolve_threads(threads));
  return histogram.information_bits(histogram.masked_per_bin(mask));
}

template class WeightHistogram<float>;
template class WeightHistogram<double>;
template double mutual_information(std::span<const float>, const mask::Bitset&, std::size_t, std::size_t);
template double mutual_information(std::span<const double>, const mask::Bitset&, std::size_t, std::size_t);

}  // namespace shieldfl::selection
