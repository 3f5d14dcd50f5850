#include "noise/noise_share.h"

#include <algorithm>
#include <cmath>
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

// Values that are rounded and noised before the next ones are: all that is made for them on the way stays in
// the first cache. A power of two, so that a kernel of ChaCha20 makes their words without a rest.
constexpr std::size_t kPiece = 512;
static_assert(kNoiseBlock % kPiece == 0 && kPiece % kShareGroup == 0);

// Rounds and noises blocks, one after the other. Owns what is secret on the way.
class ShareNoiser {
 public:
  ShareNoiser(const Seed& rounding_seed, const Seed& noise_seed, const NoiseTable& table,
              const ShareBounds& bounds)
      : rounding_seed_(rounding_seed),
        noise_seed_(noise_seed),
        table_(table),
        bounds_(bounds),
        kernels_(share_kernels(instruction_set())),
        words_(kPiece),
        rounded_(kPiece),
        rest_(kShareGroup) {}

  // Puts the share in the place of the rotated floats in `memory`: kNoiseBlock of them, or what is left at
  // the end. Returns the squared norm that they had when they were rounded.
  std::uint64_t apply(std::size_t block, std::span<std::int32_t> memory) {
    const std::size_t groups = (memory.size() + kShareGroup - 1) / kShareGroup;
    RandomStream rounding(rounding_seed_, block);
    RandomStream noise(noise_seed_, block);
    // What undecided draws take comes behind all words of the block.
    constexpr std::size_t kBlocksPerGroup = sizeof(std::uint64_t) * kDrawWordsPerGroup / kChaCha20BlockBytes;
    const auto behind = static_cast<std::uint32_t>(groups * kBlocksPerGroup);
    RandomStream more(noise_seed_, block, behind);
    const auto apply_to = [&](std::span<std::int32_t> piece) {
      fill(rounding, piece.size() / kShareGroup * kRoundingWordsPerGroup);
      const std::uint64_t squares =
          kernels_.round(reinterpret_cast<const float*>(piece.data()), rounded_.data(), words_.data(),
                         piece.size() / kShareGroup, bounds_.steps_per_unit, bounds_.most_rounded);
      fill(noise, piece.size());
      table_.add_draws_vartime(std::span(rounded_).first(piece.size()), piece,
                               std::span(words_).first(piece.size()), more, bounds_.most_sent);
      return squares;
    };
    std::uint64_t squares = 0;
    const std::size_t whole = memory.size() / kShareGroup * kShareGroup;
    for (std::size_t start = 0; start < whole; start += kPiece) {
      squares += apply_to(memory.subspan(start, std::min(kPiece, whole - start)));
    }
    if (whole < memory.size()) {
      const auto left = memory.subspan(whole);
      std::fill(rest_.begin(), rest_.end(), 0);  // 0.0F
      std::copy(left.begin(), left.end(), rest_.begin());
      squares += apply_to(rest_);
      std::copy_n(rest_.begin(), left.size(), left.begin());
    }
    // All words of the block are drawn now, and what undecided draws took came behind them.
    VERIFY(noise.next_u64() == RandomStream(noise_seed_, block, behind).next_u64());
    return squares;
  }

 private:
  void fill(RandomStream& stream, std::size_t words) {
    stream.fill({reinterpret_cast<std::uint8_t*>(words_.data()), words * sizeof(std::uint64_t)});
  }

  const Seed& rounding_seed_;
  const Seed& noise_seed_;
  const NoiseTable& table_;
  const ShareBounds& bounds_;
  const ShareKernels& kernels_;
  SecretVector<std::uint64_t> words_;
  SecretVector<std::int32_t> rounded_;
  SecretVector<std::int32_t> rest_;
};

// Rounds and noises the rotated floats in the memory of `share`; returns their squared norm when rounded.
ring::UInt128 round_and_noise(std::span<std::int32_t> share, const ShareBounds& bounds,
                              const NoiseTable& table, SeedSource& seeds, std::size_t threads) {
  const Seed rounding_seed = seeds.next();
  const Seed noise_seed = seeds.next();
  std::vector<std::uint64_t> squares((share.size() + kNoiseBlock - 1) / kNoiseBlock);
  const std::size_t used = threads_for(threads, share.size(), kValuesWorthNoise);
  parallel_for(share.size(), used, kNoiseBlock, [&](std::size_t begin, std::size_t end) {
    ShareNoiser noiser(rounding_seed, noise_seed, table, bounds);
    for (std::size_t start = begin; start < end; start += kNoiseBlock) {
      const auto part = share.subspan(start, std::min(kNoiseBlock, end - start));
      squares[start / kNoiseBlock] = noiser.apply(start / kNoiseBlock, part);
    }
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
  const std::span rotated(reinterpret_cast<float*>(share.data()), share.size());
  try {
    while (facts.roundings < kMostRoundings) {
      rotate(update, rotated, rotation_seed, facts.clipping.factor, threads);
      ++facts.roundings;
      if (round_and_noise(share, bounds, table, seeds, threads) <= bounds.norm_bound_squared) return facts;
    }
    throw Error(ErrorCode::kRange, "the rounded update was longer than its bound in all of " +
                                       std::to_string(kMostRoundings) +
                                       " roundings: raise norm_bound_squared, or lower the clipping norm");
  } catch (...) {
    secure_wipe(share.data(), share.size_bytes());
    throw;
  }
}

}  // namespace shieldfl::noise
