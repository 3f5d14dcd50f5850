#include "ring/coin_counts.h"
#include "ring/sampler_kernels.h"

namespace shieldfl::ring {
namespace {

std::size_t ternary(const std::uint64_t* words, const std::uint64_t* rejected, std::size_t pairs,
                    std::int8_t* out) {
  std::size_t kept = 0;
  for (std::size_t p = 0; p < pairs; ++p) {
    const std::uint64_t a = words[2 * p];
    const std::uint64_t b = words[2 * p + 1];
    // Every proposal is written, and the place moves on only behind those that are kept.
    for (unsigned i = 0; i < kTernaryProposals; ++i) {
      out[kept] = static_cast<std::int8_t>(static_cast<int>((a >> i) & 1) - static_cast<int>((b >> i) & 1));
      kept += (~rejected[p] >> i) & 1;
    }
  }
  return kept;
}

void error(const std::uint64_t* words, std::size_t groups, std::int8_t* out) {
  constexpr std::size_t kLanes = 8;
  for (std::size_t group = 0; group < groups; ++group) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint64_t counts = shifted_differences(words[i], words[kLanes + i]);
      for (std::size_t j = 0; j < 3; ++j) {
        const auto count = static_cast<int>((counts >> (8 * j)) & 0xff);
        out[kLanes * j + i] = static_cast<std::int8_t>(count - kErrorCoins);
      }
    }
    words += kErrorGroupWords;
    out += kErrorGroupSamples;
  }
}

}  // namespace

const SamplerKernels kSamplerKernelsScalar = {ternary, error};

}  // namespace shieldfl::ring
