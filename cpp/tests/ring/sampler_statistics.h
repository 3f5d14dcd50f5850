// Judges samples of small integers against the exact distribution that they should have, independent of each
// other.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ring/sampler.h"
#include "tests/statistics.h"

namespace shieldfl::tests {

// P(X = least + i) is probabilities[i]; symmetric about 0.
struct Distribution {
  int least;
  std::vector<double> probabilities;

  double moment(int power) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
      sum += probabilities[i] * std::pow(least + static_cast<int>(i), power);
    }
    return sum;
  }
};

inline Distribution ternary_distribution() {
  return {-1, {1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0}};
}

// The coefficients of (1 + t)^42 / 2^42, exact in double.
inline Distribution error_distribution() {
  constexpr int kCoins = 2 * ring::kErrorCoins;
  Distribution distribution{-ring::kErrorCoins, {}};
  double coefficient = 1.0;
  for (int k = 0; k <= kCoins; ++k) {
    distribution.probabilities.push_back(std::ldexp(coefficient, -kCoins));
    coefficient = coefficient * (kCoins - k) / (k + 1);
  }
  return distribution;
}

// Neighbouring values with a probability of `least` together: the group of each value.
inline std::vector<std::size_t> pool_values(const std::vector<double>& probabilities, double least) {
  std::vector<std::size_t> groups;
  std::size_t group = 0;
  double pooled = 0.0;
  double left = 1.0;
  for (const double probability : probabilities) {
    groups.push_back(group);
    pooled += probability;
    left -= probability;
    if (pooled >= least && left >= least) {
      ++group;
      pooled = 0.0;
    }
  }
  return groups;
}

inline double pearson(const std::vector<double>& observed, const std::vector<double>& expected) {
  double statistic = 0.0;
  for (std::size_t i = 0; i < observed.size(); ++i) {
    statistic += (observed[i] - expected[i]) * (observed[i] - expected[i]) / expected[i];
  }
  return statistic;
}

struct Verdict {
  std::string name;
  double value;
  double limit;

  bool passed() const { return value <= limit; }
};

class SamplerStatistics {
 public:
  explicit SamplerStatistics(Distribution distribution)
      : distribution_(std::move(distribution)), counts_(distribution_.probabilities.size(), 0.0) {
    // An eighth each: few groups, so that the table of pairs has much in each of its cells.
    pair_groups_ = pool_values(distribution_.probabilities, 1.0 / 8.0);
    group_count_ = pair_groups_.back() + 1;
    for (Lag& lag : lags_) lag.pairs.resize(group_count_ * group_count_, 0.0);
  }

  // Samples in the order in which they were drawn; pairs do not reach from one call into the next.
  void add(std::span<const std::int8_t> samples) {
    std::vector<std::size_t> groups;
    for (const std::int8_t x : samples) {
      const int index = x - distribution_.least;
      if (index < 0 || index >= static_cast<int>(counts_.size())) {
        out_of_range_ += 1.0;
        return;
      }
      counts_[static_cast<std::size_t>(index)] += 1.0;
      groups.push_back(pair_groups_[static_cast<std::size_t>(index)]);
    }
    draws_ += static_cast<double>(samples.size());
    for (Lag& lag : lags_) add_pairs(lag, samples, groups);
  }

  std::vector<Verdict> verdicts() const {
    std::vector<Verdict> verdicts = {{"out of range", out_of_range_, 0.0}, cells()};
    for (int power = 1; power <= 4; ++power) verdicts.push_back(moment(power));
    const double variance = distribution_.moment(2);
    for (const Lag& lag : lags_) {
      const std::string where = "lag " + std::to_string(lag.distance);
      const double z = lag.products / (variance * std::sqrt(lag.product_count));
      verdicts.push_back({"correlation z, " + where, std::fabs(z), normal_limit()});
      verdicts.push_back(pairs(lag, "pairs chi-square, " + where));
    }
    return verdicts;
  }

 private:
  struct Lag {
    std::size_t distance;
    double products = 0.0;
    double product_count = 0.0;
    std::vector<double> pairs{};  // by the groups of both
  };

  void add_pairs(Lag& lag, std::span<const std::int8_t> samples, const std::vector<std::size_t>& groups) {
    if (samples.size() <= lag.distance) return;
    const std::size_t count = samples.size() - lag.distance;
    std::int64_t products = 0;
    for (std::size_t i = 0; i < count; ++i) products += samples[i] * samples[i + lag.distance];
    lag.products += static_cast<double>(products);
    lag.product_count += static_cast<double>(count);
    // No sample is in two pairs: those of Pearson's statistic have to be independent.
    for (std::size_t first = 0; first < count; first += 2 * lag.distance) {
      for (std::size_t i = first; i < count && i < first + lag.distance; ++i) {
        lag.pairs[group_count_ * groups[i] + groups[i + lag.distance]] += 1.0;
      }
    }
  }

  // Every value a cell; tails with fewer than ten expected are put together, which Pearson's approximation
  // asks for.
  Verdict cells() const {
    const auto groups = pool_values(distribution_.probabilities, 10.0 / draws_);
    std::vector<double> observed(groups.back() + 1, 0.0);
    std::vector<double> expected(groups.back() + 1, 0.0);
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      observed[groups[i]] += counts_[i];
      expected[groups[i]] += distribution_.probabilities[i] * draws_;
    }
    return {"chi-square of " + std::to_string(observed.size()) + " cells", pearson(observed, expected),
            chi_square_limit(observed.size() - 1)};
  }

  // The mean of x^power in standard errors; powers 2 and 4 are the variance and the kurtosis, the mean being
  // 0.
  Verdict moment(int power) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      sum += counts_[i] * std::pow(distribution_.least + static_cast<int>(i), power);
    }
    const double mean = distribution_.moment(power);
    const double variance = distribution_.moment(2 * power) - mean * mean;
    return {"z of moment " + std::to_string(power),
            std::fabs(sum - draws_ * mean) / std::sqrt(draws_ * variance), normal_limit()};
  }

  Verdict pairs(const Lag& lag, std::string name) const {
    std::vector<double> probabilities(group_count_, 0.0);
    for (std::size_t i = 0; i < pair_groups_.size(); ++i) {
      probabilities[pair_groups_[i]] += distribution_.probabilities[i];
    }
    double total = 0.0;
    for (const double count : lag.pairs) total += count;
    std::vector<double> expected;
    for (const double first : probabilities) {
      for (const double second : probabilities) expected.push_back(total * first * second);
    }
    return {std::move(name), pearson(lag.pairs, expected), chi_square_limit(expected.size() - 1)};
  }

  Distribution distribution_;
  std::vector<double> counts_;
  std::vector<std::size_t> pair_groups_;
  std::size_t group_count_;
  double draws_ = 0.0;
  double out_of_range_ = 0.0;
  // Neighbours; errors of one word and of words side by side (8, 16); of one lane in the next group (24);
  // ternary samples of the next word (48 on average, 64 proposals); far apart.
  std::array<Lag, 7> lags_ = {{{1}, {8}, {16}, {24}, {48}, {64}, {2048}}};
};

}  // namespace shieldfl::tests
