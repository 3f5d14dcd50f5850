#include "ring/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "common/secure_memory.h"

namespace shieldfl::ring {

void sample_ternary(RandomStream& stream, std::span<std::int8_t> out) {
  // Proposals are written one after the other and the place moves on only for those that count, so the
  // last word may write up to 63 samples too many: they go into a buffer of one word's length.
  std::array<std::int8_t, 65> proposals;
  std::size_t filled = 0;
  while (filled < out.size()) {
    const std::uint64_t a = stream.next_u64();
    const std::uint64_t b = stream.next_u64();
    std::size_t kept = 0;
    for (unsigned i = 0; i < 64; ++i) {
      const auto a_bit = static_cast<std::int8_t>((a >> i) & 1);
      const auto b_bit = static_cast<std::int8_t>((b >> i) & 1);
      proposals[kept] = static_cast<std::int8_t>(a_bit - b_bit);
      kept += static_cast<std::size_t>(1 - (a_bit & b_bit));
    }
    const std::size_t taken = std::min(kept, out.size() - filled);
    std::copy_n(proposals.begin(), taken, out.begin() + static_cast<std::ptrdiff_t>(filled));
    filled += taken;
  }
  secure_wipe(proposals.data(), proposals.size());
}

void sample_error(RandomStream& stream, std::span<std::int8_t> out) {
  constexpr std::size_t kLanes = 8;
  constexpr std::size_t kSamples = 3 * kLanes;
  constexpr std::uint64_t kCoinMask = (std::uint64_t{1} << kErrorCoins) - 1;
  std::array<std::uint64_t, 2 * kLanes> words;
  std::array<std::int8_t, kSamples> samples;
  for (std::size_t filled = 0; filled < out.size(); filled += kSamples) {
    stream.fill({reinterpret_cast<std::uint8_t*>(words.data()), sizeof words});
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        const int plus = std::popcount((words[i] >> (kErrorCoins * j)) & kCoinMask);
        const int minus = std::popcount((words[kLanes + i] >> (kErrorCoins * j)) & kCoinMask);
        samples[kLanes * j + i] = static_cast<std::int8_t>(plus - minus);
      }
    }
    const std::size_t taken = std::min(kSamples, out.size() - filled);
    std::copy_n(samples.begin(), taken, out.begin() + static_cast<std::ptrdiff_t>(filled));
  }
  secure_wipe(words.data(), sizeof words);
  secure_wipe(samples.data(), sizeof samples);
}

}  // namespace shieldfl::ring
