#include "noise/levels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "common/error.h"
#include "noise/clipping.h"
#include "noise/rotation.h"
#include "parallel/parallel_for.h"

namespace shieldfl::noise {
namespace {

// Rounds magnitudes below 2^22 to whole numbers when it is added and subtracted.
constexpr float kRounding = 0x1.8p23F;

void to_nearest(std::span<float> values, float least, float most) {
  for (float& value : values) {
    const float within = std::min(std::max(value, least), most);
    value = (within + kRounding) - kRounding;
  }
}

// `sign` is that of the first value.
void to_sign(std::span<float> values, float least, float most, std::uint32_t sign) {
  for (float& value : values) {
    // A zero is below the smallest positive number, and not below zero.
    value = value < std::bit_cast<float>(sign >> 31U) ? least : most;
    sign += kSignStep;
  }
}

void check(const LevelRange& range) {
  if (!std::isfinite(range.steps_per_unit) || range.steps_per_unit <= 0.0) {
    throw Error(ErrorCode::kParameter, "the steps per unit must be positive and finite");
  }
  if (range.least >= range.most || range.least < -kMostLevel || range.most > kMostLevel) {
    throw Error(ErrorCode::kParameter, "levels must be from -2^20 to 2^20, the lowest below the highest");
  }
}

}  // namespace

double rotate_to_levels(std::span<const float> update, std::span<float> levels, const LevelRange& range,
                        const Seed& rotation_seed, std::uint32_t sign_of_zero, std::size_t threads) {
  check(range);
  if (levels.size() != update.size()) throw Error(ErrorCode::kParameter, "there is a level for each value");
  const double norm = measure_clipping(update, kLongestUpdate, threads).original_norm;
  if (norm > kLongestUpdate || norm * range.steps_per_unit > kMostSteps) {
    throw Error(ErrorCode::kRange,
                "the update is so long, or the step so fine, that no sum has room for it: lower the learning "
                "rate, check the client's data, or expect a longer norm");
  }
  rotate(update, levels, rotation_seed, range.steps_per_unit, threads);
  const auto least = static_cast<float>(range.least);
  const auto most = static_cast<float>(range.most);
  const std::size_t used = threads_for(threads, levels.size(), kValuesWorthScaling);
  parallel_for(levels.size(), used, kNoiseBlock, [&](std::size_t begin, std::size_t end) {
    const auto part = levels.subspan(begin, end - begin);
    if (range.most - range.least == 1) {
      to_sign(part, least, most, sign_of_zero + static_cast<std::uint32_t>(begin) * kSignStep);
    } else {
      to_nearest(part, least, most);
    }
  });
  return norm;
}

}  // namespace shieldfl::noise
