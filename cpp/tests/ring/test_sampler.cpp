// The order of bits. Distributions are tested in statistics_samplers.cpp, instruction sets in
// test_sampler_kernels.cpp.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "ring/sampler.h"
#include "tests/check.h"

namespace ring_sampler_tests {

using namespace shieldfl;
using namespace shieldfl::ring;

namespace {

using Sampler = void (*)(RandomStream&, std::span<std::int8_t>);

std::vector<std::int8_t> draw(Sampler sampler, std::uint64_t seed, std::size_t count) {
  RandomStream stream(InsecureTestRandom(seed).next(), 5);
  std::vector<std::int8_t> samples(count);
  sampler(stream, samples);
  return samples;
}

}  // namespace

TEST(errors_follow_the_documented_order_of_bits) {
  const std::size_t count = 24 * 50;
  RandomStream stream(InsecureTestRandom(56).next(), 5);
  std::vector<int> expected;
  while (expected.size() < count) {
    std::array<std::uint64_t, 16> w{};
    for (std::uint64_t& word : w) word = stream.next_u64();
    for (unsigned j = 0; j < 3; ++j) {
      for (std::size_t i = 0; i < 8; ++i) {
        int sample = 0;
        for (unsigned bit = 21 * j; bit <= 21 * j + 20; ++bit) {
          sample += static_cast<int>((w[i] >> bit) & 1) - static_cast<int>((w[8 + i] >> bit) & 1);
        }
        expected.push_back(sample);
      }
    }
  }
  const auto samples = draw(sample_error, 56, count);
  for (std::size_t i = 0; i < count; ++i) CHECK(samples[i] == expected[i]);
}

TEST(ternary_samples_follow_the_documented_order_of_bits) {
  const std::size_t count = 1000;
  RandomStream stream(InsecureTestRandom(57).next(), 5);
  std::vector<int> expected;
  while (expected.size() < count) {
    const std::uint64_t a = stream.next_u64();
    const std::uint64_t b = stream.next_u64();
    for (unsigned i = 0; i < 64; ++i) {
      const bool a_bit = ((a >> i) & 1) != 0;
      const bool b_bit = ((b >> i) & 1) != 0;
      if (!(a_bit && b_bit)) expected.push_back(a_bit ? 1 : b_bit ? -1 : 0);
    }
  }
  const auto samples = draw(sample_ternary, 57, count);
  for (std::size_t i = 0; i < count; ++i) CHECK(samples[i] == expected[i]);
}

TEST(a_shorter_sample_is_the_beginning_of_a_longer_one) {
  for (const Sampler sampler : {sample_error, sample_ternary}) {
    const auto longer = draw(sampler, 58, 500);
    for (std::size_t count = 0; count <= longer.size(); ++count) {
      const auto shorter = draw(sampler, 58, count);
      CHECK(std::equal(shorter.begin(), shorter.end(), longer.begin()));
    }
  }
}

}  // namespace ring_sampler_tests
