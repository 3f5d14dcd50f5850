#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "noise/noise_share.h"
#include "noise/rotation.h"
#include "ring/modulus.h"
#include "tests/check.h"
#include "tests/known_bits.h"
#include "tests/statistics.h"

namespace noise_noise_share_tests {

using namespace shieldfl;
using namespace shieldfl::tests;
using noise::NoiseTable;
using noise::ShareBounds;
using noise::ShareFacts;

namespace {

constexpr std::int32_t kWide = 1 << 30;
constexpr std::uint64_t kNoBound = ~std::uint64_t{0};

// Every draw is 0.
NoiseTable no_noise() {
  const std::vector<std::uint64_t> zeros(2);
  return {zeros, zeros, std::vector<std::uint32_t>(2)};
}

// Magnitudes 0 to 3, equally likely.
NoiseTable some_noise() {
  const std::vector<std::uint64_t> zeros(4);
  return {zeros, zeros, std::vector<std::uint32_t>{0, 1, 2, 3}};
}

struct Share {
  std::vector<std::int32_t> values;
  ShareFacts facts;
};

Share share_of(const std::vector<float>& update, const ShareBounds& bounds, const NoiseTable& table,
               std::uint64_t seed = 50, std::size_t threads = 1) {
  InsecureTestRandom seeds(seed);
  std::vector<std::int32_t> share(update.size(), -1);
  const Seed rotation = InsecureTestRandom(51).next();
  const auto facts = noise::noise_share_vartime(update, share, bounds, rotation, table, seeds, threads);
  return {share, facts};
}

std::uint64_t squares(const std::vector<std::int32_t>& values) {
  std::uint64_t sum = 0;
  for (const std::int64_t value : values) sum += static_cast<std::uint64_t>(value * value);
  return sum;
}

}  // namespace

TEST(a_share_without_noise_is_next_to_the_rotated_update) {
  for (const std::size_t count : {1, 15, 16, 17, 4096, 10'000}) {
    const auto update = known_values<float>(count, 1.0, count);
    const auto share = share_of(update, {1e3, 64.0, kNoBound, kWide, kWide}, no_noise(), 50, 2);
    std::vector<float> rotated(count);
    noise::rotate<float>(update, rotated, InsecureTestRandom(51).next(), 1.0, 1);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(std::fabs(static_cast<double>(share.values[i]) - rotated[i] * 64.0) < 1.0);
    }
    CHECK(share.facts.roundings == 1 && !share.facts.clipping.was_clipped());
  }
}

TEST(long_updates_are_clipped) {
  const auto update = known_values<float>(10'000, 1.0, 1);
  const auto share = share_of(update, {2.0, 1e6, kNoBound, kWide, kWide}, no_noise());
  CHECK(share.facts.clipping.was_clipped());
  CHECK(std::fabs(std::sqrt(static_cast<double>(squares(share.values))) * 1e-6 - 2.0) < 1e-4);
}

TEST(the_rounded_norm_is_never_above_its_bound) {
  const auto update = known_values<float>(1000, 1.0, 2);
  // What the roundings of some seeds come to: a bound at their median is missed by every other one.
  std::vector<std::uint64_t> found;
  for (std::uint64_t seed = 0; seed < 41; ++seed) {
    found.push_back(squares(share_of(update, {1.0, 8.0, kNoBound, kWide, kWide}, no_noise(), seed).values));
  }
  std::sort(found.begin(), found.end());
  const std::uint64_t bound = found[20];
  unsigned again = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto share = share_of(update, {1.0, 8.0, bound, kWide, kWide}, no_noise(), 100 + seed);
    CHECK(squares(share.values) <= bound);
    if (share.facts.roundings > 1) ++again;
  }
  CHECK(again > 20 && again < 80);
}

TEST(a_bound_that_no_rounding_keeps_is_an_error_that_leaves_nothing) {
  const std::vector<float> update(100, 1.0F);
  InsecureTestRandom seeds(1);
  std::vector<std::int32_t> share(update.size(), -1);
  const Seed rotation = seeds.next();
  const ShareBounds bounds{5.0, 1.0, 1, kWide, kWide};
  CHECK_THROWS(noise::noise_share_vartime(update, share, bounds, rotation, no_noise(), seeds, 1),
               ErrorCode::kRange);
  CHECK(share == std::vector<std::int32_t>(100, 0));
}

TEST(values_stay_within_their_bounds) {
  const auto update = known_values<float>(5000, 1.0, 3);
  const auto rounded = share_of(update, {1e3, 64.0, kNoBound, 20, kWide}, no_noise());
  CHECK(std::count(rounded.values.begin(), rounded.values.end(), 20) > 100);
  const auto noised = share_of(update, {1e3, 64.0, kNoBound, 20, kWide}, some_noise());
  const auto sent = share_of(update, {1e3, 64.0, kNoBound, 20, 22}, some_noise());
  std::size_t beyond = 0;
  for (std::size_t i = 0; i < update.size(); ++i) {
    CHECK(std::abs(rounded.values[i]) <= 20 && std::abs(noised.values[i] - rounded.values[i]) <= 3);
    CHECK(sent.values[i] == std::clamp(noised.values[i], -22, 22));
    if (noised.values[i] != sent.values[i]) ++beyond;
  }
  CHECK(beyond > 10);
}

TEST(the_noise_is_that_of_the_table_and_independent_of_the_rounding) {
  constexpr std::size_t kValues = 100'000;
  const std::vector<float> update(kValues, 0.0F);
  const auto share = share_of(update, {1.0, 64.0, kNoBound, kWide, kWide}, some_noise());
  std::vector<double> found(7);
  for (const std::int32_t value : share.values) found.at(static_cast<std::size_t>(value + 3)) += 1.0;
  double statistic = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double expected = kValues * (i == 3 ? 0.25 : 0.125);
    statistic += (found[i] - expected) * (found[i] - expected) / expected;
  }
  CHECK(statistic < chi_square_limit(6));
}

TEST(shares_do_not_depend_on_threads) {
  const auto update = known_values<float>(100'003, 1.0, 4);
  const ShareBounds bounds{50.0, 1e4, kNoBound, 12'000, 12'001};
  const auto share = share_of(update, bounds, some_noise(), 60);
  for (const std::size_t threads : {0, 2, 5}) {
    CHECK(share_of(update, bounds, some_noise(), 60, threads).values == share.values);
  }
  CHECK(share_of(update, bounds, some_noise(), 61).values != share.values);
}

TEST(bad_updates_and_bounds_are_refused) {
  const std::vector<float> update(10, 1.0F);
  const auto refused = [&](const ShareBounds& bounds) {
    CHECK_THROWS(share_of(update, bounds, no_noise()), ErrorCode::kParameter);
  };
  refused({0.0, 1.0, 1, 1, 1});
  refused({0x1p101, 1.0, 1, 1, 1});
  refused({1.0, 0.0, 1, 1, 1});
  refused({1.0, std::numeric_limits<double>::infinity(), 1, 1, 1});
  refused({1.0, 0x1.1p28, 1, 1, 1});
  refused({1.0, 1.0, 1, 0, 1});
  refused({1.0, 1.0, 1, kWide + 1, 1});
  refused({1.0, 1.0, 1, 1, 0});
  std::vector<float> broken(10, 1.0F);
  broken[7] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS(share_of(broken, {1.0, 1.0, kNoBound, 1, 1}, no_noise()), ErrorCode::kRange);
  CHECK(share_of({}, {1.0, 1.0, 0, 1, 1}, some_noise()).values.empty());
}

}  // namespace noise_noise_share_tests
