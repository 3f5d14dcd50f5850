#include "noise/gaussian.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "common/cpu_features.h"
#include "common/error.h"
#include "common/secure_memory.h"
#include "noise/noise_kernels.h"
#include "parallel/parallel_for.h"

namespace shieldfl::noise {
namespace {

// The scaled values and noise of blocks, one after the other. Owns the random words, and wipes them.
class BlockNoiser {
 public:
  BlockNoiser(const Seed& seed, double factor, double deviation)
      : seed_(seed),
        factor_(factor),
        deviation_(deviation),
        kernels_(noise_kernels(instruction_set())),
        words_(kNoiseBlock / kGaussianGroup * kWordsPerGroup) {}

  // in and out: kNoiseBlock values, or what is left of them at the end.
  void apply(std::size_t block, std::span<const float> in, std::span<float> out) {
    const std::size_t whole = in.size() / kGaussianGroup;
    const std::size_t groups = (in.size() + kGaussianGroup - 1) / kGaussianGroup;
    const std::span words = std::span(words_).first(groups * kWordsPerGroup);
    RandomStream stream(seed_, block);
    stream.fill({reinterpret_cast<std::uint8_t*>(words.data()), words.size_bytes()});
    kernels_.scale_and_add_gaussian(in.data(), out.data(), words.data(), whole, factor_, deviation_);
    if (groups == whole) return;

    std::array<float, kGaussianGroup> last{};
    const auto rest = in.subspan(whole * kGaussianGroup);
    std::copy(rest.begin(), rest.end(), last.begin());
    kernels_.scale_and_add_gaussian(last.data(), last.data(), words.data() + whole * kWordsPerGroup, 1,
                                    factor_, deviation_);
    std::copy_n(last.begin(), rest.size(), out.begin() + static_cast<std::ptrdiff_t>(whole * kGaussianGroup));
    secure_wipe(last.data(), sizeof last);  // beyond the values there is noise alone
  }

 private:
  const Seed& seed_;
  double factor_;
  double deviation_;
  const NoiseKernels& kernels_;
  SecretVector<std::uint64_t> words_;
};

void check_deviation(double standard_deviation) {
  if (!std::isfinite(standard_deviation) || standard_deviation < 0.0) {
    throw Error(ErrorCode::kParameter, "the noise's standard deviation must be finite and not negative");
  }
}

void scale_and_add(std::span<const float> in, std::span<float> out, double factor, double deviation,
                   SeedSource& seeds, std::size_t threads) {
  const Seed seed = seeds.next();
  const std::size_t used = threads_for(threads, in.size(), kValuesWorthNoise);
  parallel_for(in.size(), used, kNoiseBlock, [&](std::size_t begin, std::size_t end) {
    BlockNoiser noiser(seed, factor, deviation);
    for (std::size_t start = begin; start < end; start += kNoiseBlock) {
      const std::size_t size = std::min(kNoiseBlock, end - start);
      noiser.apply(start / kNoiseBlock, in.subspan(start, size), out.subspan(start, size));
    }
  });
}

}  // namespace

GaussianPair standard_gaussian_pair(RandomStream& stream) {
  // 53 random bits each; the first is shifted into (0, 1], where the logarithm is finite.
  const double u = (static_cast<double>(stream.next_u64() >> 11) + 1.0) * 0x1.0p-53;
  const double v = static_cast<double>(stream.next_u64() >> 11) * 0x1.0p-53;
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void add_gaussian(std::span<float> values, double standard_deviation, SeedSource& seeds,
                  std::size_t threads) {
  check_deviation(standard_deviation);
  static_cast<void>(resolve_threads(threads));
  if (standard_deviation == 0.0) return;
  scale_and_add(values, values, 1.0, standard_deviation, seeds, threads);
}

Clipping clip_and_add_gaussian(std::span<const float> values, std::span<float> noised, double clip_norm,
                               double standard_deviation, SeedSource& seeds, std::size_t threads) {
  check_deviation(standard_deviation);
  static_cast<void>(resolve_threads(threads));
  if (standard_deviation == 0.0) return clip(values, noised, clip_norm, threads);
  const Clipping clipping = measure_clipping(values, clip_norm, threads);
  scale_and_add(values, noised, clipping.factor, standard_deviation, seeds, threads);
  return clipping;
}

}  // namespace shieldfl::noise
