#include "noise/noise_share.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "common/error.h"
#include "common/secure_memory.h"
#include "noise/rotation.h"
#include "noise/share_kernels.h"
#include "parallel/parallel_for.h"
#include "ring/modulus.h"

namespace shieldfl::noise {
namespace {

// Rounding, or rounding and noise, of blocks, one after the other. Owns what is secret on the way.
class BlockRounder {
 public:
  BlockRounder(const Seed& rounding_seed, double steps)
      : seed_(rounding_seed),
        steps_(steps),
        kernels_(share_kernels(instruction_set())),
        values_(kNoiseBlock),
        words_(kNoiseBlock) {}

  // The squared norm of the rounded block whose rotated values are in `memory`.
  std::uint64_t squares(std::size_t block, std::span<const std::int32_t> memory) {
    const std::size_t groups = read(block, memory);
    return kernels_.rounded_squares(values_.data(), words_.data(), groups, steps_);
  }

  // Puts the share in the place of the rotated values.
  void replace(std::size_t block, std::span<std::int32_t> memory, const Seed& noise_seed,
               const NoiseTable& table, const ShareBounds& bounds) {
    const std::size_t groups = read(block, memory);
    rounded_.resize(kNoiseBlock);
    sums_.resize(kNoiseBlock);
    kernels_.round(values_.data(), rounded_.data(), words_.data(), groups, steps_, bounds.most_rounded);
    RandomStream stream(noise_seed, block);
    const std::span words = std::span(words_).first(groups * kDrawWordsPerGroup);
    stream.fill({reinterpret_cast<std::uint8_t*>(words.data()), words.size_bytes()});
    table.add_draws_vartime(std::span(rounded_).first(words.size()), std::span(sums_).first(words.size()),
                            words, stream, bounds.most_sent);
    std::copy_n(sums_.begin(), memory.size(), memory.begin());
  }

 private:
  // Fills the values, with zeros up to whole groups, and the words that round them. Returns the groups.
  std::size_t read(std::size_t block, std::span<const std::int32_t> memory) {
    const std::size_t groups = (memory.size() + kShareGroup - 1) / kShareGroup;
    std::memcpy(values_.data(), memory.data(), memory.size_bytes());
    std::fill(values_.begin() + static_cast<std::ptrdiff_t>(memory.size()),
              values_.begin() + static_cast<std::ptrdiff_t>(groups * kShareGroup), 0.0F);
    RandomStream stream(seed_, block);
    stream.fill({reinterpret_cast<std::uint8_t*>(words_.data()),
                 groups * kRoundingWordsPerGroup * sizeof(std::uint64_t)});
    return groups;
  }

  const Seed& seed_;
  double steps_;
  const ShareKernels& kernels_;
  SecretVector<float> values_;
  SecretVector<std::uint64_t> words_;
  SecretVector<std::int32_t> rounded_;
  SecretVector<std::int32_t> sums_;
};

// Calls use(rounder, block, its part of `memory`) for all blocks.
template <typename Memory, typename Use>
void for_blocks(Memory memory, const Seed& rounding_seed, double steps, std::size_t threads, Use use) {
  parallel_for(memory.size(), threads, kNoiseBlock, [&](std::size_t begin, std::size_t end) {
    BlockRounder rounder(rounding_seed, steps);
    for (std::size_t start = begin; start < end; start += kNoiseBlock) {
      use(rounder, start / kNoiseBlock, memory.subspan(start, std::min(kNoiseBlock, end - start)));
    }
  });
}

ring::UInt128 rounded_squares(std::span<const std::int32_t> memory, const Seed& rounding_seed, double steps,
                              std::size_t threads) {
  std::vector<std::uint64_t> squares((memory.size() + kNoiseBlock - 1) / kNoiseBlock);
  for_blocks(memory, rounding_seed, steps, threads,
             [&](BlockRounder& rounder, std::size_t block, std::span<const std::int32_t> part) {
               squares[block] = rounder.squares(block, part);
             });
  ring::UInt128 total = 0;
  for (const std::uint64_t square : squares) total += square;
  return total;
}

void check(const ShareBounds& bounds) {
  if (!std::isfinite(bounds.steps_per_unit) || bounds.steps_per_unit <= 0.0) {
    throw Error(ErrorCode::kParameter, "the steps per unit must be positive and finite");
  }
  if (bounds.clip_norm > kMostClipNorm || bounds.clip_norm * bounds.steps_per_unit > kMostNormSteps) {
    throw Error(ErrorCode::kParameter,
                "the clipping norm must be at most 2^100, and at most 2^28 steps: take fewer steps per unit");
  }
  if (bounds.most_rounded < 1 || bounds.most_rounded > 1 << 30 || bounds.most_sent < 1) {
    throw Error(ErrorCode::kParameter,
                "rounded values must be bounded by 1 to 2^30, and what is sent by at least 1");
  }
}

}  // namespace

ShareFacts noise_share_vartime(std::span<const float> update, std::span<std::int32_t> share,
                               const ShareBounds& bounds, const Seed& rotation_seed, const NoiseTable& table,
                               SeedSource& seeds, std::size_t threads) {
  check(bounds);
  ShareFacts facts{measure_clipping(update, bounds.clip_norm, threads), 0};
  // Floats in the memory that is to hold integers of the same size: a second array would cost as much again.
  static_assert(sizeof(float) == sizeof(std::int32_t));
  rotate(update, std::span(reinterpret_cast<float*>(share.data()), share.size()), rotation_seed,
         facts.clipping.factor, threads);

  const std::size_t used = threads_for(threads, update.size(), kValuesWorthNoise);
  try {
    for (;;) {
      const Seed rounding_seed = seeds.next();
      ++facts.roundings;
      if (rounded_squares(share, rounding_seed, bounds.steps_per_unit, used) > bounds.norm_bound_squared) {
        if (facts.roundings < kMostRoundings) continue;
        throw Error(ErrorCode::kRange,
                    "the rounded update was longer than its bound in all of " +
                        std::to_string(kMostRoundings) +
                        " roundings: raise norm_bound_squared, or lower the clipping norm");
      }
      const Seed noise_seed = seeds.next();
      for_blocks(share, rounding_seed, bounds.steps_per_unit, used,
                 [&](BlockRounder& rounder, std::size_t block, std::span<std::int32_t> part) {
                   rounder.replace(block, part, noise_seed, table, bounds);
                 });
      return facts;
    }
  } catch (...) {
    secure_wipe(share.data(), share.size_bytes());
    throw;
  }
}

}  // namespace shieldfl::noise
