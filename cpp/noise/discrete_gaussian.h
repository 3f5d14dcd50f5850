// The discrete Gaussian: integers y with probability proportional to exp(-y^2 / (2 sigma^2)), drawn exactly,
// by algorithms 1 to 3 of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy"
// (2020).
//
// All arithmetic is in integers; every comparison with a probability is exact, from as many random bits as it
// takes. So the running time depends on the draws: whoever can time single draws learns about the noise.
// Hence the names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/random.h"
#include "ring/modulus.h"

namespace shieldfl::noise {

using ring::UInt128;

// A random stream in 16-bit pieces, little-endian.
class RandomPieces {
 public:
  RandomPieces(const Seed& seed, std::uint64_t stream_index) : stream_(seed, stream_index) {}
  RandomPieces(const RandomPieces&) = delete;
  RandomPieces& operator=(const RandomPieces&) = delete;
  ~RandomPieces();

  std::uint32_t next() {
    if (used_ == pieces_.size()) refill();
    return pieces_[used_++];
  }

 private:
  void refill();

  RandomStream stream_;
  std::array<std::uint16_t, 2048> pieces_{};
  std::size_t used_ = 2048;
};

// True with probability exp(-numerator / denominator), exactly (algorithm 1).
// Preconditions: 0 < denominator <= 2^100, numerator < 2^127.
bool bernoulli_exp_minus_vartime(UInt128 numerator, UInt128 denominator, RandomPieces& pieces);

// sigma^2 = numerator / denominator.
struct RationalVariance {
  std::uint64_t numerator;
  std::uint64_t denominator;
};

// Within these bounds 128 bits hold every intermediate value.
inline constexpr std::uint64_t kMostVarianceNumerator = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kMostVarianceDenominator = std::uint64_t{1} << 24;

class DiscreteGaussian {
 public:
  // Throws Error(kParameter) when a part of the variance is 0 or above its bound.
  explicit DiscreteGaussian(RationalVariance variance);

  // A draw (algorithm 3), below 2^37 in magnitude.
  std::int64_t draw_vartime(RandomPieces& pieces) const;

 private:
  // Probability proportional to exp(-|y| / laplace_scale_) (algorithm 2).
  std::int64_t draw_laplace_vartime(RandomPieces& pieces) const;

  RationalVariance variance_;
  std::uint64_t laplace_scale_;  // floor(sigma) + 1
};

}  // namespace shieldfl::noise
