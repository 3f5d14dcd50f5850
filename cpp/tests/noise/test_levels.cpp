#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "common/error.h"
#include "noise/levels.h"
#include "noise/rotation.h"
#include "tests/check.h"

namespace noise_levels_tests {

using namespace shieldfl;
using namespace shieldfl::tests;

namespace {

const Seed& seed() {
  static const Seed kSeed = InsecureTestRandom(77).next();
  return kSeed;
}

constexpr std::uint32_t kSignOfZero = 0xC0FFEE00;

std::vector<float> normal_values(std::size_t count) {
  std::mt19937_64 engine(count);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

std::vector<float> levels_of(const std::vector<float>& update, const noise::LevelRange& range,
                             std::size_t threads = 1) {
  std::vector<float> levels(update.size());
  noise::rotate_to_levels(update, levels, range, seed(), kSignOfZero, threads);
  return levels;
}

}  // namespace

TEST(levels_are_nearest_to_the_rotated_values) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'001}}) {
    const std::vector<float> update = normal_values(count);
    for (const noise::LevelRange& range : {noise::LevelRange{2.4, -7, 7},
                                           {0.7, -1, 1},
                                           {33.0, -127, 127},
                                           {1.0, -1, 0},
                                           {1.0, 0, 1},
                                           {1e4, -3, 9}}) {
      std::vector<float> rotated(count);
      noise::rotate<float>(update, rotated, seed(), range.steps_per_unit, 1);
      std::vector<float> expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto nearest = static_cast<std::int32_t>(std::clamp(
            std::nearbyint(rotated[i]), static_cast<float>(range.least), static_cast<float>(range.most)));
        const std::int32_t sign = rotated[i] < 0.0F ? range.least : range.most;
        expected[i] = static_cast<float>(range.most - range.least == 1 ? sign : nearest);
      }
      for (const std::size_t threads : {1, 2, 3}) CHECK(levels_of(update, range, threads) == expected);
    }
  }
}

TEST(zeros_have_signs_by_their_position) {
  const std::vector<float> nothing(1'000'000);
  const std::vector<float> levels = levels_of(nothing, {1.0, -1, 0}, 2);
  for (std::size_t i = 0; i < nothing.size(); ++i) {
    const bool minus = ((kSignOfZero + i * noise::kSignStep) >> 31U) % 2 != 0;
    CHECK(levels[i] == (minus ? -1.0F : 0.0F));
  }
  CHECK(levels_of(nothing, {1.0, -1, 1}) == nothing);
}

TEST(the_norm_is_returned_and_what_has_none_is_refused) {
  std::vector<float> update = {3.0F, -4.0F};
  std::vector<float> levels(2, 5.0F);
  const noise::LevelRange range{1.0, -7, 7};
  CHECK(noise::rotate_to_levels(update, levels, range, seed(), kSignOfZero, 1) == 5.0);
  const auto refused = [&](const std::vector<float>& values, const noise::LevelRange& with, ErrorCode code) {
    std::vector<float> kept(values.size(), 5.0F);
    CHECK_THROWS(noise::rotate_to_levels(values, kept, with, seed(), kSignOfZero, 1), code);
    CHECK(std::all_of(kept.begin(), kept.end(), [](float one) { return one == 5.0F; }));
  };
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0x1p101F}) {
    refused({1.0F, bad}, range, ErrorCode::kRange);
  }
  refused({0x1p90F, 0.0F}, {0x1p40, -7, 7}, ErrorCode::kRange);
  for (const noise::LevelRange& bad : {noise::LevelRange{0.0, -7, 7},
                                       {-1.0, -7, 7},
                                       {1.0, 7, 7},
                                       {1.0, 8, 7},
                                       {1.0, -7, (1 << 20) + 1},
                                       {1.0, -(1 << 20) - 1, 7},
                                       {std::numeric_limits<double>::infinity(), -7, 7}}) {
    refused(update, bad, ErrorCode::kParameter);
  }
  std::vector<float> short_one(1);
  CHECK_THROWS(noise::rotate_to_levels(update, short_one, range, seed(), kSignOfZero, 1),
               ErrorCode::kParameter);
}

}  // namespace noise_levels_tests
