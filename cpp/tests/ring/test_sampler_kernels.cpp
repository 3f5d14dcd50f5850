#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/cpu_features.h"
#include "ring/sampler.h"
#include "ring/sampler_kernels.h"
#include "tests/check.h"

namespace ring_sampler_kernels_tests {

using namespace shieldfl;
using namespace shieldfl::ring;

namespace {

std::vector<const SamplerKernels*> all_kernels() {
  std::vector<const SamplerKernels*> kernels;
  for (const InstructionSet set : supported_instruction_sets()) {
    kernels.push_back(&sampler_kernels(set));
  }
  return kernels;
}

// Random words, of which every fourth is all zeros, all ones or a single bit.
std::vector<std::uint64_t> words_with_edges(std::uint64_t seed, std::size_t count) {
  RandomStream stream(InsecureTestRandom(seed).next(), 0);
  std::vector<std::uint64_t> words(count);
  for (std::uint64_t& word : words) {
    const std::uint64_t choice = stream.next_u64();
    const std::array<std::uint64_t, 3> edges = {0, ~std::uint64_t{0}, std::uint64_t{1} << (choice >> 58)};
    word = choice % 4 == 0 ? edges[(choice >> 8) % 3] : stream.next_u64();
  }
  return words;
}

constexpr std::int8_t kUntouched = 99;

// By definition, with margins behind `out` untouched.
void check_ternary(const SamplerKernels& kernels, const std::vector<std::uint64_t>& words) {
  const std::size_t pairs = words.size() / 2;
  std::vector<std::uint64_t> rejected(pairs);
  std::vector<std::int8_t> expected;
  for (std::size_t p = 0; p < pairs; ++p) {
    rejected[p] = words[2 * p] & words[2 * p + 1];
    for (unsigned i = 0; i < 64; ++i) {
      const bool a = ((words[2 * p] >> i) & 1) != 0;
      const bool b = ((words[2 * p + 1] >> i) & 1) != 0;
      if (!(a && b)) expected.push_back(static_cast<std::int8_t>(int{a} - int{b}));
    }
  }
  std::vector<std::int8_t> out(kTernaryProposals * pairs + 64, kUntouched);
  CHECK(kernels.ternary(words.data(), rejected.data(), pairs, out.data()) == expected.size());
  CHECK(std::equal(expected.begin(), expected.end(), out.begin()));
  for (std::size_t i = kTernaryProposals * pairs; i < out.size(); ++i) CHECK(out[i] == kUntouched);
}

void check_error(const SamplerKernels& kernels, const std::vector<std::uint64_t>& words) {
  const std::size_t groups = words.size() / kErrorGroupWords;
  std::vector<std::int8_t> out(kErrorGroupSamples * groups + 64, kUntouched);
  kernels.error(words.data(), groups, out.data());
  for (std::size_t k = 0; k < kErrorGroupSamples * groups; ++k) {
    const std::size_t place = k % kErrorGroupSamples;
    const std::uint64_t* const w = words.data() + kErrorGroupWords * (k / kErrorGroupSamples) + place % 8;
    const std::uint64_t coins = std::uint64_t{0x1fffff} << (21 * (place / 8));
    CHECK(out[k] == std::popcount(w[0] & coins) - std::popcount(w[8] & coins));
  }
  for (std::size_t i = kErrorGroupSamples * groups; i < out.size(); ++i) CHECK(out[i] == kUntouched);
}

}  // namespace

TEST(every_ternary_kernel_follows_the_definition) {
  for (const SamplerKernels* const kernels : all_kernels()) {
    for (std::size_t pairs = 0; pairs < 40; ++pairs)
      check_ternary(*kernels, words_with_edges(70 + pairs, 2 * pairs));
    check_ternary(*kernels, words_with_edges(69, 2000));
  }
}

TEST(every_error_kernel_follows_the_definition) {
  for (const SamplerKernels* const kernels : all_kernels()) {
    for (std::size_t groups = 0; groups < 40; ++groups) {
      check_error(*kernels, words_with_edges(120 + groups, kErrorGroupWords * groups));
    }
    check_error(*kernels, words_with_edges(119, kErrorGroupWords * 1000));
  }
}

TEST(error_kernels_reach_both_ends_in_every_place) {
  for (const SamplerKernels* const kernels : all_kernels()) {
    for (std::size_t place = 0; place < kErrorGroupSamples; ++place) {
      const std::uint64_t coins = std::uint64_t{0x1fffff} << (21 * (place / 8));
      for (const bool positive : {true, false}) {
        // All the other coins are against it.
        std::vector<std::uint64_t> words(kErrorGroupWords);
        for (std::size_t i = 0; i < 8; ++i) words[positive ? 8 + i : i] = ~std::uint64_t{0};
        words[place % 8] ^= coins;
        words[8 + place % 8] ^= coins;
        check_error(*kernels, words);
        std::vector<std::int8_t> out(kErrorGroupSamples);
        kernels->error(words.data(), 1, out.data());
        CHECK(out[place] == (positive ? kErrorCoins : -kErrorCoins));
      }
    }
  }
}

// Ternary samples and errors drawn in turn from one stream: the same samples and the same place in the stream
// behind them, whatever the lengths.
TEST(samplers_agree_on_every_instruction_set) {
  const auto kernels = all_kernels();
  std::vector<std::size_t> lengths = {0, 1, 23, 24, 25, 63, 64, 65, 767, 768, 769, 4095, 4096, 4097, 50000};
  for (std::size_t length = 2047; length <= 2060; ++length) lengths.push_back(length);
  for (const std::size_t length : lengths) {
    std::vector<std::vector<std::int8_t>> samples;
    std::vector<std::uint64_t> next_words;
    for (const SamplerKernels* const each : kernels) {
      RandomStream stream(InsecureTestRandom(62).next(), length);
      std::vector<std::int8_t> drawn(3 * length);
      const std::span<std::int8_t> out(drawn);
      sample_ternary_with(*each, stream, out.first(length));
      sample_error_with(*each, stream, out.subspan(length, length));
      sample_error_with(*each, stream, out.subspan(2 * length));
      samples.push_back(std::move(drawn));
      next_words.push_back(stream.next_u64());
    }
    for (std::size_t i = 1; i < kernels.size(); ++i) {
      CHECK(samples[i] == samples[0]);
      CHECK(next_words[i] == next_words[0]);
    }
  }
}

TEST(samplers_consume_whole_pairs_and_whole_groups) {
  for (const SamplerKernels* const kernels : all_kernels()) {
    for (std::size_t length = 0; length < 300; ++length) {
      std::vector<std::int8_t> out(length);
      RandomStream errors(InsecureTestRandom(63).next(), 0);
      RandomStream words(InsecureTestRandom(63).next(), 0);
      sample_error_with(*kernels, errors, out);
      for (std::size_t i = 0; i < (length + 23) / 24 * 16; ++i) (void)words.next_u64();
      CHECK(errors.next_u64() == words.next_u64());

      RandomStream ternary(InsecureTestRandom(64).next(), 0);
      RandomStream pairs(InsecureTestRandom(64).next(), 0);
      sample_ternary_with(*kernels, ternary, out);
      for (std::size_t kept = 0; kept < length;) {
        const std::uint64_t a = pairs.next_u64();
        kept += static_cast<std::size_t>(std::popcount(~(a & pairs.next_u64())));
      }
      CHECK(ternary.next_u64() == pairs.next_u64());
    }
  }
}

TEST(samplers_reach_the_last_word_of_a_stream) {
  // 32 blocks are 16 groups of error words: 384 samples.
  const std::uint32_t first_block = 0u - 32;
  for (const SamplerKernels* const kernels : all_kernels()) {
    std::vector<std::int8_t> out(24 * 16 + 1);
    RandomStream enough(InsecureTestRandom(65).next(), 0, first_block);
    sample_error_with(*kernels, enough, std::span(out).first(24 * 16));
    CHECK_THROWS(enough.next_u64(), ErrorCode::kInternal);
    RandomStream too_short(InsecureTestRandom(65).next(), 0, first_block);
    CHECK_THROWS(sample_error_with(*kernels, too_short, out), ErrorCode::kInternal);
  }
}

}  // namespace ring_sampler_kernels_tests
