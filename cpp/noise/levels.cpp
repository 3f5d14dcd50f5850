#include "noise/levels.h"

#include <algorithm>
#include <array>
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

// Of kNoiseBlock values, or what is left at the end.
void to_sign(std::span<float> values, float least, float most, RandomStream signs_of_zeros) {
  std::array<std::uint64_t, kNoiseBlock / 64> words{};
  signs_of_zeros.fill({reinterpret_cast<std::uint8_t*>(words.data()), sizeof words});
  for (std::size_t i = 0; i < values.size(); ++i) {
    // A zero is below the smallest positive number, and not below zero.
    const auto is_minus = static_cast<std::uint32_t>(words[i / 64] >> (i % 64) & 1U);
    values[i] = values[i] < std::bit_cast<float>(is_minus) ? least : most;
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
                        const Seed& rotation_seed, const Seed& seed_of_zeros, std::size_t threads) {
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
    for (std::size_t start = begin; start < end; start += kNoiseBlock) {
      const auto part = levels.subspan(start, std::min(kNoiseBlock, end - start));
      if (range.most - range.least == 1) {
        to_sign(part, least, most, RandomStream(seed_of_zeros, start / kNoiseBlock));
      } else {
        to_nearest(part, least, most);
      }
    }
  });
  return norm;
}

}  // namespace shieldfl::noise
