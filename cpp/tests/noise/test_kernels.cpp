#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "common/cpu_features.h"
#include "noise/noise_kernels.h"
#include "tests/check.h"

namespace noise_kernels_tests {

using namespace shieldfl;
using noise::kGaussianGroup;
using noise::kRadiusWords;
using noise::kWordsPerGroup;
using noise::noise_kernels;
using noise::NoiseKernels;

namespace {

std::vector<const NoiseKernels*> all_kernels() {
  std::vector<const NoiseKernels*> tables;
  for (const InstructionSet set : supported_instruction_sets()) {
    tables.push_back(&noise_kernels(set));
  }
  return tables;
}

// Mostly random; the first words are extreme: the radius at both ends and next to where the logarithm's
// argument changes its binade or its range, the angle at the ends of its range.
std::vector<std::uint64_t> random_words(std::size_t groups, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<std::uint64_t> words(groups * kWordsPerGroup);
  for (auto& word : words) word = generator();
  std::size_t i = 0;
  for (const std::uint64_t top :
       {0x0ULL, 0x1ULL, 0x2ULL, 0xfffffffffffffULL, 0xffffffffffffeULL, 0x7ffffffffffffULL,
        0x8000000000000ULL, 0xb504f333f9de6ULL, 0xb504f333f9de5ULL, 0x5a827999fcef3ULL, 0x5a827999fcef2ULL,
        0xfffff00000000ULL}) {
    words[i] = (top << 12) | (i % 2 == 0 ? 0 : 0xfff);
    ++i;
  }
  words[kRadiusWords] = 0x3fff0000bfffffff;
  words[kRadiusWords + 1] = 0x80007fff4000c000;
  return words;
}

// What the header of the kernels promises, in long double.
std::vector<long double> draws_by_definition(const std::vector<std::uint64_t>& words) {
  std::vector<long double> draws(words.size() / kWordsPerGroup * kGaussianGroup);
  for (std::size_t group = 0; group * kWordsPerGroup < words.size(); ++group) {
    const std::uint64_t* w = words.data() + group * kWordsPerGroup;
    for (std::size_t p = 0; p < 32; ++p) {
      const std::uint64_t b = (w[32 + p % 8] >> (16 * (p / 8))) & 0xffff;
      const long double u = (2.0L * static_cast<long double>(w[p] >> 12) + 1.0L) * 0x1p-53L;
      const auto k = static_cast<long double>(((w[p] & 0xfff) << 14) + (b & 0x3fff));
      const long double angle =
          std::numbers::pi_v<long double> / 2.0L * ((2.0L * k + 1.0L) * 0x1p-27L - 0.5L);
      const long double radius = std::sqrt(-2.0L * std::log(u));
      const long double cosine = radius * std::cos(angle) * ((b >> 15) != 0 ? -1.0L : 1.0L);
      const long double sine = radius * std::sin(angle);
      const bool swapped = ((b >> 14) & 1) != 0;
      draws[group * kGaussianGroup + p] = swapped ? sine : cosine;
      draws[group * kGaussianGroup + p + 32] = swapped ? cosine : sine;
    }
  }
  return draws;
}

// A table's draws to 48 bits: each as a float and, from a second call that takes that float away, the rest of
// it.
std::vector<double> draws_of(const NoiseKernels& kernels, const std::vector<std::uint64_t>& words) {
  const std::size_t groups = words.size() / kWordsPerGroup;
  std::vector<float> high(groups * kGaussianGroup, 0.0F);
  kernels.scale_and_add_gaussian(high.data(), high.data(), words.data(), groups, 1.0, 1.0);
  std::vector<float> low(high.size());
  kernels.scale_and_add_gaussian(high.data(), low.data(), words.data(), groups, -1.0, 1.0);
  std::vector<double> draws(high.size());
  for (std::size_t i = 0; i < draws.size(); ++i) {
    draws[i] = static_cast<double>(high[i]) + static_cast<double>(low[i]);
  }
  return draws;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint64_t>(a[i]) != std::bit_cast<std::uint64_t>(b[i])) return false;
  }
  return a.size() == b.size();
}

}  // namespace

TEST(each_draw_is_that_of_the_definition_up_to_2_to_the_minus_33) {
  for (const std::size_t groups : {1, 2, 3000}) {
    const auto words = random_words(groups, groups);
    const auto expected = draws_by_definition(words);
    for (const NoiseKernels* kernels : all_kernels()) {
      const auto draws = draws_of(*kernels, words);
      for (std::size_t i = 0; i < draws.size(); ++i) {
        CHECK(std::fabs(draws[i] - expected[i]) < 0x1p-33L * std::fabs(expected[i]));
      }
    }
  }
}

TEST(draws_reach_eight_and_a_half_deviations) {
  std::vector<std::uint64_t> words(kWordsPerGroup, 0);
  words[0] = 0x800;  // the largest radius, straight along an axis
  for (const NoiseKernels* kernels : all_kernels()) {
    const double draw = draws_of(*kernels, words)[0];
    CHECK(draw > 8.5 && draw < 8.58);
  }
}

TEST(all_instruction_sets_make_the_same_noise) {
  const auto& scalar = noise_kernels(InstructionSet::kScalar);
  for (const std::size_t groups : {1, 2, 3, 64, 1000}) {
    const std::size_t count = groups * kGaussianGroup;
    const auto words = random_words(groups, groups);
    std::mt19937_64 generator(count);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(generator);
    values[0] = -0.0F;
    values[1] = std::numeric_limits<float>::denorm_min();
    values[2] = std::numeric_limits<float>::max();
    for (const NoiseKernels* kernels : all_kernels()) {
      CHECK(same_bits(draws_of(*kernels, words), draws_of(scalar, words)));
      std::vector<float> noised(count);
      std::vector<float> expected(count);
      for (const auto& [factor, deviation] :
           {std::pair{1.0, 1e-3}, std::pair{1.0 / 3.0, 1.0}, std::pair{1e-40, 1e30}, std::pair{0.7, 1e-60}}) {
        kernels->scale_and_add_gaussian(values.data(), noised.data(), words.data(), groups, factor,
                                        deviation);
        scalar.scale_and_add_gaussian(values.data(), expected.data(), words.data(), groups, factor,
                                      deviation);
        for (std::size_t i = 0; i < count; ++i) {
          CHECK(std::bit_cast<std::uint32_t>(noised[i]) == std::bit_cast<std::uint32_t>(expected[i]));
        }
      }
    }
  }
}

TEST(all_instruction_sets_have_the_same_norm_and_products) {
  const auto& scalar = noise_kernels(InstructionSet::kScalar);
  std::mt19937_64 generator(3);
  std::vector<float> values(4200);
  for (float& value : values) value = std::ldexp(static_cast<float>(generator()) - 0x1p63F, -63);
  for (std::size_t offset = 0; offset < 3; ++offset) {  // unaligned, too
    for (std::size_t count = 0; count <= 4100; count += count < 70 ? 1 : 991) {
      const float* in = values.data() + offset;
      long double exact = 0.0L;
      for (std::size_t i = 0; i < count; ++i) exact += static_cast<long double>(in[i]) * in[i];
      for (const NoiseKernels* kernels : all_kernels()) {
        const double sum = kernels->sum_of_squares(in, count);
        CHECK(std::bit_cast<std::uint64_t>(sum) ==
              std::bit_cast<std::uint64_t>(scalar.sum_of_squares(in, count)));
        CHECK(std::fabs(sum - exact) <= 0x1p-45L * exact);
        std::vector<float> products(count + 1, 5.0F);
        kernels->scale(in, products.data(), count, 0.3);
        for (std::size_t i = 0; i < count; ++i) CHECK(products[i] == static_cast<float>(in[i] * 0.3));
        CHECK(products[count] == 5.0F);
      }
    }
  }
}

TEST(the_sum_of_squares_is_not_finite_exactly_when_a_value_is_not) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const NoiseKernels* kernels : all_kernels()) {
    std::vector<float> values(77, std::numeric_limits<float>::max());
    CHECK(std::isfinite(kernels->sum_of_squares(values.data(), values.size())));
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        values[i] = bad;
        CHECK(!std::isfinite(kernels->sum_of_squares(values.data(), values.size())));
        values[i] = std::numeric_limits<float>::max();
      }
    }
  }
}

}  // namespace noise_kernels_tests
