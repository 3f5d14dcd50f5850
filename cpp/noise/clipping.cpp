#include "noise/clipping.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "common/error.h"
#include "noise/noise_kernels.h"
#include "parallel/parallel_for.h"

namespace shieldfl::noise {
namespace {

// What makes the bound hold without tolerance. The norm's relative error is below 2^-26 for up to 2^40 values
// (256 additions in a block, one a block after that, half of it by the square root). Rounding products to
// float adds 2^-24, or 2^-150 a value below the normal floats, which is below 2^-30 of kLeastClipNorm in all.
constexpr double kClipRoundingMargin = 1.0 - 0x1p-23;

double l2_norm(std::span<const float> values, std::size_t threads) {
  const NoiseKernels& kernels = noise_kernels(instruction_set());
  std::vector<double> sums((values.size() + kNoiseBlock - 1) / kNoiseBlock);
  const std::size_t used = threads_for(threads, values.size(), kValuesWorthScaling);
  parallel_for(values.size(), used, kNoiseBlock, [&](std::size_t begin, std::size_t end) {
    for (std::size_t start = begin; start < end; start += kNoiseBlock) {
      sums[start / kNoiseBlock] =
          kernels.sum_of_squares(values.data() + start, std::min(kNoiseBlock, end - start));
    }
  });
  double total = 0.0;
  for (std::size_t block = 0; block < sums.size(); ++block) {
    if (!std::isfinite(sums[block])) {
      std::size_t position = block * kNoiseBlock;
      // Not past the block, should another thread have written there since it was summed.
      const std::size_t last = std::min(position + kNoiseBlock, values.size()) - 1;
      while (position < last && std::isfinite(values[position])) ++position;
      throw Error(ErrorCode::kRange, "the value at position " + std::to_string(position) +
                                         " is NaN or infinite: it cannot be clipped");
    }
    total += sums[block];
  }
  return std::sqrt(total);
}

}  // namespace

Clipping measure_clipping(std::span<const float> values, double clip_norm, std::size_t threads) {
  if (!std::isfinite(clip_norm) || clip_norm < kLeastClipNorm) {
    throw Error(ErrorCode::kParameter, "the clipping norm must be finite and at least 2^-100");
  }
  const double norm = l2_norm(values, threads);
  return {norm, norm > clip_norm ? clip_norm / norm * kClipRoundingMargin : 1.0};
}

Clipping clip(std::span<const float> values, std::span<float> clipped, double clip_norm,
              std::size_t threads) {
  const Clipping clipping = measure_clipping(values, clip_norm, threads);
  const NoiseKernels& kernels = noise_kernels(instruction_set());
  const std::size_t used = threads_for(threads, values.size(), kValuesWorthScaling);
  parallel_for(values.size(), used, kNoiseBlock, [&](std::size_t begin, std::size_t end) {
    kernels.scale(values.data() + begin, clipped.data() + begin, end - begin, clipping.factor);
  });
  return clipping;
}

}  // namespace shieldfl::noise
