#include "selection/selection.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/error.h"
#include "parallel/parallel_for.h"
#include "selection/exact_sum.h"
#include "selection/mutual_information.h"
#include "selection/mutual_information_search.h"
#include "selection/score_ranking.h"

namespace shieldfl::selection {
namespace {

constexpr int kDoubleBits = 53;

bool is_positive(double value) {
  return value > 0.0 && std::isfinite(value);
}

// The right-hand side of eq. 7.
double required_share(const SelectionLimits& limits) {
  if (!is_positive(limits.exposed_share) || !is_positive(limits.exposure_decay)) {
    fail_parameter("exposed_share and exposure_decay must be finite and above 0");
  }
  const double exposed = limits.exposed_share * std::exp(-limits.exposure_decay * limits.budget);
  if (exposed > 1.0) {
    fail_parameter(
        "exposed_share * e^(-exposure_decay * budget) is above 1: lower exposed_share or raise the others");
  }
  return 1.0 - exposed;
}

void check_weights(const SelectionLimits& limits) {
  if (!is_positive(limits.cost_weight) || !is_positive(limits.gain_weight)) {
    fail_parameter("cost_weight and gain_weight must be finite and above 0");
  }
  if (!(limits.information_bits >= 0.0)) {
    fail_parameter("the limit of the mutual information must be at least 0 bits");
  }
}

// How many positions gain more than they cost: gain_weight * score / sum > cost_weight / P.
template <typename T>
std::uint64_t best_count(const ScoreRanking<T>& ranking, const SelectionLimits& limits) {
  using Key = typename ScoreKey<T>::Key;
  const double cost = limits.cost_weight / limits.gain_weight;
  // No score is more than the sum of all.
  if (cost >= static_cast<double>(ranking.all().count)) return 0;
  // score * P > cost * sum, both sides divided by the power of two in `cost`, which is below 2^31: what is
  // left of it is a whole number, and the power is negative.
  int exponent = 0;
  const auto significand = static_cast<std::uint64_t>(std::ldexp(std::frexp(cost, &exponent), kDoubleBits));
  const ExactSum bar = ranking.all().sum.times(significand);
  const auto gains = [&](Key key) {
    ExactSum gain;
    gain.add(ScoreKey<T>::significand(key), ScoreKey<T>::exponent(key) + kDoubleBits - exponent);
    return gain.times(ranking.all().count) > bar;
  };
  Key too_low = 0;  // of score 0, which gains nothing
  Key least = ScoreKey<T>::kInfinity;
  while (least - too_low > 1) {
    const Key middle = too_low + (least - too_low) / 2;
    (gains(middle) ? least : too_low) = middle;
  }
  return ranking.count_from(least);
}

// The fewest of the ranking's first positions that have a share of the sum.
template <typename T>
std::uint64_t security_count(const ScoreRanking<T>& ranking, double share) {
  // 1 less a number in [0, 1] is a multiple of 2^-53.
  const ExactSum bar = ranking.all().sum.times(static_cast<std::uint64_t>(std::ldexp(share, kDoubleBits)));
  if (bar.is_zero()) return 0;
  return ranking
      .shortest([&bar](const Leading& leading) {
        return leading.sum.times(std::uint64_t{1} << kDoubleBits) >= bar;
      })
      .leading.count;
}

template <typename T>
typename ScoreRanking<T>::Cut cut_after(const ScoreRanking<T>& ranking, std::uint64_t count) {
  return ranking.shortest([count](const Leading& leading) { return leading.count >= count; });
}

}  // namespace

std::uint64_t positions_in_budget(double budget, std::uint64_t size) {
  if (!(budget > 0.0 && budget <= 1.0)) fail_parameter("the budget must be above 0 and at most 1");
  const auto fits = [=](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(size) <= budget;
  };
  // Rounding may have gone either way.
  auto count = std::min(size, static_cast<std::uint64_t>(budget * static_cast<double>(size)));
  while (count > 0 && !fits(count)) --count;
  while (count < size && fits(count + 1)) ++count;
  return count;
}

template <typename T>
Selection select(std::span<const T> scores, std::span<const T> weights, const SelectionLimits& limits,
                 std::size_t threads) {
  threads = resolve_threads(threads);
  check_weights(limits);
  if (scores.empty()) fail_parameter("there are no scores: pass a vector with at least one");
  if (scores.size() != weights.size()) {
    fail_parameter("there are " + std::to_string(scores.size()) + " scores and " +
                   std::to_string(weights.size()) + " weights: pass vectors over the same parameters");
  }
  Selection selection;
  selection.budget_count = positions_in_budget(limits.budget, scores.size());
  selection.required_share = required_share(limits);
  const ScoreRanking<T> ranking(scores, threads);
  const WeightHistogram<T> histogram(weights, limits.bins, threads);
  selection.best_count = best_count(ranking, limits);
  selection.security_count = security_count(ranking, selection.required_share);
  selection.information_count = fewest_masked(histogram, scores, limits.information_bits, threads);

  const std::uint64_t count =
      std::min(selection.budget_count,
               std::max({selection.best_count, selection.security_count, selection.information_count}));
  ExactSum chosen;
  if (count == 0) {
    selection.mask = mask::Bitset(scores.size());
  } else {
    const auto cut = cut_after(ranking, count);
    chosen = cut.leading.sum;
    selection.mask = ranking.positions_before(cut);
  }
  selection.share = ranking.all().sum.is_zero() ? 1.0 : ratio(chosen, ranking.all().sum);
  selection.information_bits = histogram.information_bits(histogram.masked_per_bin(selection.mask));
  return selection;
}

template <typename T>
mask::Bitset top_k(std::span<const T> scores, std::uint64_t k, std::size_t threads) {
  const ScoreRanking<T> ranking(scores, resolve_threads(threads));
  if (k > scores.size()) {
    fail_parameter("cannot choose " + std::to_string(k) + " of " + std::to_string(scores.size()) +
                   " positions");
  }
  if (k == 0) return mask::Bitset(scores.size());
  return ranking.positions_before(cut_after(ranking, k));
}

template Selection select(std::span<const float>, std::span<const float>, const SelectionLimits&,
                          std::size_t);
template Selection select(std::span<const double>, std::span<const double>, const SelectionLimits&,
                          std::size_t);
template mask::Bitset top_k(std::span<const float>, std::uint64_t, std::size_t);
template mask::Bitset top_k(std::span<const double>, std::uint64_t, std::size_t);

}  // namespace shieldfl::selection
