#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "noise/clipping.h"
#include "tests/check.h"

namespace noise_clipping_tests {

using namespace shieldfl;
using noise::clip;
using noise::measure_clipping;

namespace {

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

long double exact_norm(const std::vector<float>& values) {
  long double sum = 0.0L;
  for (const float value : values) sum += static_cast<long double>(value) * value;
  return std::sqrt(sum);
}

std::string refusal(const std::vector<float>& values, std::size_t threads) {
  try {
    measure_clipping(values, 1.0, threads);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRange);
    return error.what();
  }
  return "";
}

}  // namespace

TEST(a_clipped_vector_is_never_longer_than_the_bound) {
  for (const std::size_t count : {1, 2, 63, 4096, 4097, 50'000}) {
    const auto values = random_values(count, count);
    for (const double bound : {0x1p-100, 1e-12, 0.7, 1.0, 1e9}) {
      std::vector<float> clipped(count);
      const auto clipping = clip(values, clipped, bound, 2);
      CHECK(std::fabs(clipping.original_norm - exact_norm(values)) <= 0x1p-40L * exact_norm(values));
      CHECK(clipping.was_clipped() == (exact_norm(values) > bound));
      if (clipping.was_clipped()) {
        CHECK(exact_norm(clipped) <= bound && exact_norm(clipped) > bound * (1.0 - 1e-6));
      } else {
        CHECK(clipped == values);
      }
      auto in_place = values;
      clip(in_place, in_place, bound, 1);
      CHECK(in_place == clipped);
    }
  }
}

TEST(the_norm_does_not_depend_on_threads) {
  const auto values = random_values(100'003, 9);
  const double expected = measure_clipping(values, 1.0, 1).original_norm;
  for (const std::size_t threads : {0, 2, 3, 16}) {
    CHECK(measure_clipping(values, 1.0, threads).original_norm == expected);
  }
}

TEST(the_first_value_that_is_no_number_is_named) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t position : {0, 1, 4095, 4096, 9'999}) {
      std::vector<float> values(10'000, 1.0F);
      values[position] = bad;
      values.back() = bad;
      for (const std::size_t threads : {1, 3}) {
        CHECK(refusal(values, threads).find("position " + std::to_string(position) + " ") !=
              std::string::npos);
      }
    }
  }
  CHECK(refusal(std::vector<float>(10'000, std::numeric_limits<float>::max()), 2).empty());
}

TEST(an_empty_vector_has_norm_zero) {
  const auto clipping = measure_clipping({}, 1.0, 2);
  CHECK(clipping.original_norm == 0.0 && !clipping.was_clipped());
}

TEST(clipping_refuses_a_bad_norm) {
  const std::vector<float> values(3, 1.0F);
  for (const double norm : {0.0, -1.0, 0x1p-101, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS(measure_clipping(values, norm, 1), ErrorCode::kParameter);
  }
}

}  // namespace noise_clipping_tests
