#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "common/cpu_features.h"
#include "noise/rotation_kernels.h"
#include "tests/check.h"

namespace noise_rotation_kernels_tests {

using namespace shieldfl;
using noise::rotation_kernels;
using noise::RotationKernels;

namespace {

template <typename T>
std::vector<const RotationKernels<T>*> all_kernels() {
  std::vector<const RotationKernels<T>*> tables;
  for (const InstructionSet set : supported_instruction_sets()) {
    tables.push_back(&rotation_kernels<T>(set));
  }
  return tables;
}

template <typename T>
std::vector<T> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<T> normal;
  std::vector<T> values(count);
  for (T& value : values) value = normal(generator);
  return values;
}

template <typename T>
bool same_bits(const std::vector<T>& left, const std::vector<T>& right) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](T a, T b) { return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b); });
}

// Stage after stage, pair after pair: what the header promises.
template <typename T>
void transform_by_definition(T* values, std::size_t count, std::size_t first_distance = 1) {
  for (std::size_t distance = first_distance; distance < count; distance *= 2) {
    for (std::size_t i = 0; i < count; ++i) {
      if ((i & distance) != 0) continue;
      const T a = values[i];
      const T b = values[i + distance];
      values[i] = a + b;
      values[i + distance] = a - b;
    }
  }
}

template <typename T>
void check_transforms() {
  for (unsigned log2_count = 0; log2_count <= 14; ++log2_count) {
    const auto values = random_values<T>(std::size_t{1} << log2_count, log2_count);
    auto expected = values;
    transform_by_definition(expected.data(), expected.size());
    for (const auto* kernels : all_kernels<T>()) {
      auto transformed = values;
      kernels->transform(transformed.data(), log2_count);
      CHECK(same_bits(transformed, expected));
    }
  }
}

template <typename T>
void check_rows() {
  for (unsigned stages = 1; stages <= noise::kMostStages; ++stages) {
    constexpr std::size_t kStride = 64;
    const auto values = random_values<T>(kStride << stages, stages);
    auto expected = values;
    transform_by_definition(expected.data(), expected.size(), kStride);
    for (const auto* kernels : all_kernels<T>()) {
      auto combined = values;
      for (std::size_t column = 0; column < kStride; column += 16) {
        T* const rows = combined.data() + column;
        kernels->combine_rows(rows, kStride, rows, kStride, stages, 16);
      }
      CHECK(same_bits(combined, expected));
      std::vector<T> gathered(std::size_t{16} << stages);
      kernels->combine_rows(values.data() + 16, kStride, gathered.data(), 16, stages, 16);
      for (std::size_t i = 0; i < gathered.size(); ++i) {
        CHECK(gathered[i] == expected[i / 16 * kStride + 16 + i % 16]);
      }
      std::vector<T> spread(values.size());
      std::vector<T> close(gathered);
      kernels->combine_rows(gathered.data(), 16, spread.data() + 32, kStride, stages, 16);
      kernels->combine_rows(close.data(), 16, close.data(), 16, stages, 16);
      for (std::size_t i = 0; i < close.size(); ++i)
        CHECK(close[i] == spread[i / 16 * kStride + 32 + i % 16]);
    }
  }
}

template <typename T>
void check_signs() {
  std::mt19937_64 generator(5);
  for (std::size_t count = 0; count <= 300; count += count < 70 ? 1 : 23) {
    std::vector<std::uint64_t> signs((count + 63) / 64);
    for (auto& word : signs) word = generator();
    const auto values = random_values<T>(count + 1, count);
    for (const auto* kernels : all_kernels<T>()) {
      auto changed = values;
      kernels->scale_and_sign(changed.data(), signs.data(), count, T(0.3));
      for (std::size_t i = 0; i < count; ++i) {
        const T scaled = values[i] * T(0.3);
        CHECK(changed[i] == ((signs[i / 64] >> (i % 64)) % 2 != 0 ? -scaled : scaled));
      }
      CHECK(changed[count] == values[count]);
    }
  }
}

}  // namespace

TEST(every_transform_adds_as_defined) {
  check_transforms<float>();
  check_transforms<double>();
}

TEST(rows_are_combined_as_defined) {
  check_rows<float>();
  check_rows<double>();
}

TEST(signs_are_the_bits_of_their_words) {
  check_signs<float>();
  check_signs<double>();
}

}  // namespace noise_rotation_kernels_tests
