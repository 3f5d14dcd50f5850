#include "noise/gaussian.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/error.h"
#include "parallel/parallel_for.h"

namespace shieldfl::noise {

GaussianPair standard_gaussian_pair(RandomStream& stream) {
  // 53 random bits each; the first is shifted into (0, 1], where the logarithm is finite.
  const double u = (static_cast<double>(stream.next_u64() >> 11) + 1.0) * 0x1.0p-53;
  const double v = static_cast<double>(stream.next_u64() >> 11) * 0x1.0p-53;
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void add_gaussian(std::span<float> out, double standard_deviation, SeedSource& seeds, std::size_t threads) {
  if (!std::isfinite(standard_deviation) || standard_deviation < 0.0) {
    throw Error(ErrorCode::kParameter, "the noise's standard deviation must be finite and not negative");
  }
  threads = resolve_threads(threads);
  if (standard_deviation == 0.0) return;
  constexpr std::size_t kBlock = 4096;
  const Seed seed = seeds.next();
  parallel_for(out.size(), threads, kBlock, [&](std::size_t begin, std::size_t end) {
    for (std::size_t start = begin; start < end; start += kBlock) {
      RandomStream stream(seed, start / kBlock);
      const auto block = out.subspan(start, std::min(kBlock, end - start));
      for (std::size_t i = 0; i < block.size(); i += 2) {
        const GaussianPair pair = standard_gaussian_pair(stream);
        block[i] = static_cast<float>(block[i] + standard_deviation * pair.first);
        if (i + 1 == block.size()) break;
        block[i + 1] = static_cast<float>(block[i + 1] + standard_deviation * pair.second);
      }
    }
  });
}

}  // namespace shieldfl::noise
