#include "noise/grid_noise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "common/error.h"
#include "common/verify.h"
#include "parallel/parallel_for.h"

namespace shieldfl::noise {
namespace {

constexpr double kMostGridNorm = 0x1p50;

// Covers the relative errors of the norm (2^-26) and of each product (2^-53).
constexpr double kGridRoundingMargin = 1.0 - 0x1p-23;

// The norm that values are clipped to before they are rounded.
double norm_before_rounding(double clip_norm, unsigned fraction_bits, std::size_t count) {
  if (!std::isfinite(clip_norm) || clip_norm < kLeastClipNorm) {
    throw Error(ErrorCode::kParameter, "the clipping norm must be finite and at least 2^-100");
  }
  if (fraction_bits > 150 || std::ldexp(clip_norm, static_cast<int>(fraction_bits)) > kMostGridNorm) {
    throw Error(ErrorCode::kParameter,
                "the clipping norm is more than 2^50 steps of the grid: take fewer fraction bits");
  }
  const double rounding =
      std::ldexp(std::sqrt(static_cast<double>(count)), -static_cast<int>(fraction_bits) - 1);
  if (rounding > clip_norm / 2.0) {
    throw Error(ErrorCode::kParameter,
                "rounding " + std::to_string(count) +
                    " values to the grid may move them by more than half of the clipping "
                    "norm: take more fraction bits");
  }
  return (clip_norm - rounding) * kGridRoundingMargin;
}

// To the nearest integer, ties to even.
double round_to_even(double x) {
  VERIFY(std::fabs(x) <= 0x1p51);
  constexpr double kShift = 0x1.8p52;
  return (x + kShift) - kShift;
}

}  // namespace

Clipping clip_and_add_discrete_gaussian_vartime(std::span<const float> values, std::span<double> noised,
                                                double clip_norm, unsigned fraction_bits,
                                                RationalVariance variance, SeedSource& seeds,
                                                std::size_t threads) {
  const DiscreteGaussian gaussian(variance);
  const double bound = norm_before_rounding(clip_norm, fraction_bits, values.size());
  const Clipping clipping = measure_clipping(values, bound, threads);
  const double steps = std::ldexp(clipping.factor, static_cast<int>(fraction_bits));
  const double step = std::ldexp(1.0, -static_cast<int>(fraction_bits));
  const Seed seed = seeds.next();
  const std::size_t used = threads_for(threads, values.size(), kValuesWorthDiscreteNoise);
  parallel_for(values.size(), used, kNoiseBlock, [&](std::size_t begin, std::size_t end) {
    for (std::size_t start = begin; start < end; start += kNoiseBlock) {
      RandomPieces pieces(seed, start / kNoiseBlock);
      for (std::size_t i = start; i < std::min(start + kNoiseBlock, end); ++i) {
        const auto draw = static_cast<double>(gaussian.draw_vartime(pieces));
        noised[i] = (round_to_even(values[i] * steps) + draw) * step;
      }
    }
  });
  return clipping;
}

}  // namespace shieldfl::noise
