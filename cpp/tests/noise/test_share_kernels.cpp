#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "common/cpu_features.h"
#include "noise/share_kernels.h"
#include "ring/modulus.h"
#include "tests/check.h"
#include "tests/statistics.h"

namespace noise_share_kernels_tests {

using namespace shieldfl;
using noise::kShareGroup;
using noise::share_kernels;
using noise::ShareKernels;

namespace {

std::vector<const ShareKernels*> all_kernels() {
  std::vector<const ShareKernels*> tables;
  for (const InstructionSet set : supported_instruction_sets()) {
    tables.push_back(&share_kernels(set));
  }
  return tables;
}

std::vector<std::uint64_t> random_words(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<std::uint64_t> words(count);
  for (auto& word : words) word = generator();
  return words;
}

// Of all sizes that are allowed, and of both signs; some are integers or next to them.
std::vector<float> random_values(std::size_t groups) {
  std::mt19937_64 generator(8);
  std::vector<float> values(groups * kShareGroup);
  for (float& value : values) {
    const auto size = static_cast<int>(generator() % 60) - 32;
    value = std::ldexp(static_cast<float>(static_cast<std::int64_t>(generator())) * 0x1p-63F, size);
    if (generator() % 4 == 0) value = std::nearbyint(value);
  }
  return values;
}

constexpr double kSteps = 1.375;

// What the header promises, in long double, which holds all of it exactly.
std::int64_t rounded_by_definition(const std::vector<float>& values, const std::vector<std::uint64_t>& words,
                                   std::size_t i) {
  const std::uint64_t word = words[i / kShareGroup * noise::kRoundingWordsPerGroup + i % 8];
  const std::uint64_t r = i % kShareGroup < 8 ? word & 0xffffffff : word >> 32;
  const long double x = static_cast<double>(values[i]) * kSteps;
  const bool up = (static_cast<long double>(r) + 0.5L) * 0x1p-32L < x - std::floor(x);
  return static_cast<std::int64_t>(std::floor(x)) + (up ? 1 : 0);
}

}  // namespace

TEST(values_are_rounded_as_defined) {
  constexpr std::size_t kGroups = 200;
  const auto values = random_values(kGroups);
  const auto words = random_words(kGroups * noise::kRoundingWordsPerGroup, 9);
  std::vector<std::int64_t> expected;
  std::uint64_t squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    expected.push_back(rounded_by_definition(values, words, i));
    squares += static_cast<std::uint64_t>(expected[i] * expected[i]);
  }
  for (const ShareKernels* kernels : all_kernels()) {
    for (const std::int32_t most : {1 << 30, 1000}) {
      std::vector<std::int32_t> rounded(values.size() + 1, 7);
      CHECK(kernels->round(values.data(), rounded.data(), words.data(), kGroups, kSteps, most) == squares);
      for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(rounded[i] == std::clamp<std::int64_t>(expected[i], -most, most));
      }
      CHECK(rounded.back() == 7);
    }
  }
}

TEST(rounding_keeps_the_mean) {
  constexpr std::size_t kGroups = 20'000;
  const auto words = random_words(kGroups * noise::kRoundingWordsPerGroup, 11);
  for (const float value : {0.25F, -0.75F, 7.0F, -1000.125F, 3e-3F}) {
    const std::vector<float> values(kGroups * kShareGroup, value);
    std::vector<std::int32_t> rounded(values.size());
    share_kernels(best_instruction_set())
        .round(values.data(), rounded.data(), words.data(), kGroups, 1.0, 1 << 20);
    double sum = 0.0;
    for (const std::int32_t r : rounded) sum += static_cast<double>(r) - static_cast<double>(value);
    const double fraction = static_cast<double>(value) - std::floor(static_cast<double>(value));
    const double deviation = std::sqrt(fraction * (1.0 - fraction) * static_cast<double>(values.size()));
    CHECK(std::fabs(sum) <= tests::normal_limit() * deviation);
  }
}

TEST(draws_are_added_as_defined) {
  constexpr std::size_t kGroups = 64;
  constexpr std::uint64_t kBuckets = 32;
  auto buckets = random_words(kBuckets, 12);
  for (auto& bucket : buckets) bucket = (bucket >> 32 << 32) | (bucket % kBuckets);
  const auto words = random_words(kGroups * noise::kDrawWordsPerGroup, 13);
  std::vector<std::int32_t> values(words.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i) - 500;
  for (const ShareKernels* kernels : all_kernels()) {
    for (const std::int32_t most : {1 << 30, 400}) {
      std::vector<std::int32_t> sums(values.size());
      CHECK(!kernels->add_draws_vartime(values.data(), sums.data(), words.data(), kGroups, buckets.data(),
                                        kBuckets - 1, most));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t b = (words[i] >> 1) % kBuckets;
        const auto magnitude =
            static_cast<std::int32_t>(words[i] >> 32 < buckets[b] >> 32 ? b : buckets[b] % kBuckets);
        CHECK(sums[i] == std::clamp(values[i] + (words[i] % 2 != 0 ? -magnitude : magnitude), -most, most));
      }
    }
  }
}

TEST(sums_at_the_ends_of_their_range_do_not_wrap) {
  constexpr std::int32_t kDraw = (1 << 30) - 1;
  constexpr std::int32_t kMost = 0x7fffffff;
  const std::vector<std::uint64_t> buckets(2, kDraw);
  std::vector<std::uint64_t> words(kShareGroup);
  for (std::size_t i = 0; i < kShareGroup; ++i) words[i] = (std::uint64_t{1} << 32) | (i % 2);  // plus, minus
  for (const ShareKernels* kernels : all_kernels()) {
    for (const std::int32_t value : {1 << 30, -(1 << 30)}) {
      const std::vector<std::int32_t> values(kShareGroup, value);
      for (const std::int32_t most : {kMost, kMost - 1}) {
        std::vector<std::int32_t> sums(kShareGroup);
        CHECK(!kernels->add_draws_vartime(values.data(), sums.data(), words.data(), 1, buckets.data(), 1,
                                          most));
        for (std::size_t i = 0; i < kShareGroup; ++i) {
          CHECK(sums[i] == std::clamp(i % 2 == 0 ? value + kDraw : value - kDraw, -most, most));
        }
      }
    }
  }
}

TEST(an_equal_half_is_noticed_wherever_it_is) {
  const std::vector<std::uint64_t> buckets = {std::uint64_t{77} << 32, std::uint64_t{88} << 32};
  const std::vector<std::int32_t> values(2 * kShareGroup);
  for (const ShareKernels* kernels : all_kernels()) {
    std::vector<std::int32_t> sums(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::vector<std::uint64_t> words(values.size(), std::uint64_t{99} << 32);
      const auto undecided = [&] {
        return kernels->add_draws_vartime(values.data(), sums.data(), words.data(), 2, buckets.data(), 1, 9);
      };
      CHECK(!undecided());
      words[i] = (std::uint64_t{88} << 32) | 2;
      CHECK(undecided());
      words[i] = (std::uint64_t{88} << 32) | 1;  // of the other bucket
      CHECK(!undecided());
    }
  }
}

}  // namespace noise_share_kernels_tests
