// How much the weights that are sent in the clear tell of all weights: I(W; masked W) of SenseCrypt, eq. 3.
//
// A histogram estimate. Weights fall into equal-width bins over the smallest range that holds them all and 0;
// a masked weight counts as 0 in the masked vector, whose bins are the same. Let n_b be the weights in bin b,
// of all P, and m_b those among them that the masked vector has in the bin of 0: the masked ones, and in the
// bin of 0 itself all n_b. A masked vector's weight in another bin b says that the true one is in b, so
//
//   P * I = P * (H(W) - H(W | masked W)) = A(n) - A(m),   A(c) = sum over b of c_b log2(sum(c) / c_b).
//
// Masking more positions never adds information: for a value b but that of 0, W is in bin b whichever of the
// positions is masked next, so the new masked vector's joint distribution with W is what a channel makes of
// the old one, which turns b into 0 with the share of the newly masked and leaves 0 as it is (the data
// processing inequality). Indeed A does not fall as a count grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mask/bitset.h"

namespace shieldfl::selection {

inline constexpr std::size_t kMostBins = std::size_t{1} << 16;

// T is float or double. Refers to the weights, which must outlive the histogram and stay as they are.
template <typename T>
class WeightHistogram {
 public:
  // `threads`: at least 1. Throws Error(kParameter) for no weights, more than mask::kMaxPositions and for
  // bins outside [1, kMostBins]; Error(kRange), naming the first such position, for a weight that is NaN or
  // infinite.
  WeightHistogram(std::span<const T> weights, std::size_t bins, std::size_t threads);

  [[nodiscard]] std::size_t size() const noexcept { return weights_.size(); }
  [[nodiscard]] std::size_t bins() const noexcept { return totals_.size(); }
  // The bin of the weight at a position below size().
  [[nodiscard]] std::size_t bin_at(std::size_t position) const noexcept { return bin_of(weights_[position]); }

  // The masked weights in every bin. Throws Error(kParameter) for a mask of another size.
  [[nodiscard]] std::vector<std::uint64_t> masked_per_bin(const mask::Bitset& mask) const;
  // I(W; masked W) in bits where so many weights of every bin are masked: at least 0, and exactly 0 where all
  // are.
  [[nodiscard]] double information_bits(std::span<const std::uint64_t> masked) const;

 private:
  // Whatever the weight, below bins(): one that another thread writes meanwhile does no harm.
  [[nodiscard]] std::size_t bin_of(T weight) const noexcept {
    const double place = (static_cast<double>(weight) * unit_ - lowest_) * bins_per_range_;
    const double clamped = place > 0.0 ? place : 0.0;
    return static_cast<std::size_t>(clamped < last_bin_ ? clamped : last_bin_);
  }
  void set_range();

  std::span<const T> weights_;
  std::size_t threads_;
  // A power of two that keeps the range's width from overflowing and its reciprocal too.
  double unit_ = 1.0;
  double lowest_ = 0.0;
  double bins_per_range_ = 0.0;
  double last_bin_;
  std::vector<std::uint64_t> totals_;
  std::size_t zero_bin_ = 0;
  double total_bits_ = 0.0;  // A(n)
};

// I(W; masked W) in bits. `threads`: 0 means all cores; the result does not depend on it. Throws what
// WeightHistogram throws.
template <typename T>
double mutual_information(std::span<const T> weights, const mask::Bitset& mask, std::size_t bins,
                          std::size_t threads = 0);

}  // namespace shieldfl::selection
