#include "ring/sampler.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "common/cpu_features.h"
#include "common/secure_memory.h"
#include "common/taint.h"

namespace shieldfl::ring {

void sample_ternary_with(const SamplerKernels& kernels, RandomStream& stream, std::span<std::int8_t> out) {
  constexpr std::size_t kPairsAtOnce = RandomStream::kMaxPeekWords / 2;
  constexpr std::size_t kKeptPerPair = kTernaryProposals * 3 / 4;  // on average
  std::array<std::uint64_t, kPairsAtOnce> rejected;
  std::array<std::int8_t, kTernaryProposals> last;
  while (!out.empty()) {
    // Pairs whose samples all fit, whatever is rejected; when there is none, one pair by way of `last`.
    const bool fits = out.size() >= kTernaryProposals;
    const std::size_t pairs = fits ? std::min(out.size() / kTernaryProposals, kPairsAtOnce) : 1;
    const std::uint64_t* const words =
        stream.peek_words(2 * pairs, 2 * (out.size() / kKeptPerPair + 1)).data();
    for (std::size_t p = 0; p < pairs; ++p) rejected[p] = words[2 * p] & words[2 * p + 1];
    // A proposal is rejected with probability 1/4 whatever the others are, and is no part of any sample.
    declassify(rejected.data(), pairs * sizeof rejected[0]);
    const std::size_t kept = kernels.ternary(words, rejected.data(), pairs, fits ? out.data() : last.data());
    stream.consume_words(2 * pairs);
    const std::size_t taken = std::min(kept, out.size());
    if (!fits) std::copy_n(last.data(), taken, out.data());
    out = out.subspan(taken);
  }
  secure_wipe(last.data(), sizeof last);
}

void sample_error_with(const SamplerKernels& kernels, RandomStream& stream, std::span<std::int8_t> out) {
  std::size_t groups_left = (out.size() + kErrorGroupSamples - 1) / kErrorGroupSamples;
  while (groups_left > 0) {
    const auto words = stream.peek_words(kErrorGroupWords, kErrorGroupWords * groups_left);
    const std::size_t groups = std::min(words.size() / kErrorGroupWords, groups_left);
    const std::size_t whole = std::min(groups, out.size() / kErrorGroupSamples);
    kernels.error(words.data(), whole, out.data());
    out = out.subspan(kErrorGroupSamples * whole);
    if (whole < groups) {
      std::array<std::int8_t, kErrorGroupSamples> last;
      kernels.error(words.data() + kErrorGroupWords * whole, 1, last.data());
      std::copy_n(last.data(), out.size(), out.data());
      secure_wipe(last.data(), sizeof last);
    }
    stream.consume_words(kErrorGroupWords * groups);
    groups_left -= groups;
  }
}

void sample_ternary(RandomStream& stream, std::span<std::int8_t> out) {
  sample_ternary_with(sampler_kernels(instruction_set()), stream, out);
}

void sample_error(RandomStream& stream, std::span<std::int8_t> out) {
  sample_error_with(sampler_kernels(instruction_set()), stream, out);
}

}  // namespace shieldfl::ring
