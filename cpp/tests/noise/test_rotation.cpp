#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "noise/rotation.h"
#include "tests/check.h"
#include "tests/known_bits.h"
#include "tests/statistics.h"

namespace noise_rotation_tests {

using namespace shieldfl;
using namespace shieldfl::tests;

namespace {

Seed seed_of(std::uint64_t number) {
  return InsecureTestRandom(number).next();
}

template <typename T>
std::vector<T> rotated(const std::vector<T>& values, const Seed& seed, std::size_t threads = 1,
                       double factor = 1.0) {
  std::vector<T> out(values.size());
  noise::rotate<T>(values, out, seed, factor, threads);
  return out;
}

template <typename T>
std::vector<T> rotated_back(const std::vector<T>& values, const Seed& seed, std::size_t threads = 1,
                            double factor = 1.0) {
  std::vector<T> out(values.size());
  noise::rotate_back<T>(values, out, seed, factor, threads);
  return out;
}

// One transform of the header by the entries of its matrix, in long double.
void transform_by_definition(std::vector<long double>& values, std::size_t start, const Seed& seed,
                             std::uint64_t t) {
  const std::size_t count = std::bit_floor(values.size());
  RandomStream stream(seed, t);
  std::vector<std::uint8_t> bits((count + 7) / 8);
  stream.fill(bits);
  std::vector<long double> result(count);
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t column = 0; column < count; ++column) {
      const bool negative = (bits[column / 8] >> (column % 8)) % 2 != 0;
      const bool entry_negative = std::popcount(row & column) % 2 != 0;
      result[row] += (negative != entry_negative ? -1.0L : 1.0L) * values[start + column];
    }
  }
  const long double norm = std::sqrt(static_cast<long double>(count));
  for (std::size_t i = 0; i < count; ++i) values[start + i] = result[i] / norm;
}

template <typename T>
long double distance(const std::vector<T>& left, const std::vector<long double>& right) {
  long double most = 0.0L;
  for (std::size_t i = 0; i < left.size(); ++i) most = std::max(most, std::fabs(left[i] - right[i]));
  return most;
}

}  // namespace

TEST(a_rotation_is_the_product_of_its_two_transforms) {
  for (const std::size_t count : {1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 100, 1000, 1024}) {
    const Seed seed = seed_of(count);
    const auto values = known_values<double>(count, 1.0, count);
    std::vector<long double> expected(values.begin(), values.end());
    for (auto& value : expected) value *= 0.5L;
    transform_by_definition(expected, 0, seed, 0);
    transform_by_definition(expected, count - std::bit_floor(count), seed, 1);
    CHECK(distance(rotated(values, seed, 1, 0.5), expected) < 1e-13L);
    const std::vector<float> narrow(values.begin(), values.end());
    CHECK(distance(rotated(narrow, seed, 1, 0.5), expected) < 1e-5L);
  }
}

// More values than are transformed at once, stage by stage: each value is the same, to the last bit.
template <typename T>
void check_stages(std::size_t count) {
  const Seed seed = seed_of(4);
  const auto values = known_values<T>(count, 1.0, count);
  auto expected = values;
  const std::size_t part = std::bit_floor(count);
  for (std::uint64_t t = 0; t < 2; ++t) {
    T* const x = expected.data() + (t == 0 ? 0 : count - part);
    RandomStream stream(seed, t);
    std::vector<std::uint8_t> bits((part + 7) / 8);
    stream.fill(bits);
    const T norm = static_cast<T>(1.0 / std::sqrt(static_cast<double>(part)));
    for (std::size_t i = 0; i < part; ++i) x[i] *= (bits[i / 8] >> (i % 8)) % 2 != 0 ? -norm : norm;
    for (std::size_t distance = 1; distance < part; distance *= 2) {
      for (std::size_t i = 0; i < part; ++i) {
        if ((i & distance) != 0) continue;
        const T a = x[i];
        x[i] = a + x[i + distance];
        x[i + distance] = a - x[i + distance];
      }
    }
  }
  CHECK(rotated(values, seed, 2) == expected);
}

TEST(long_rotations_are_those_of_their_stages) {
  check_stages<float>((std::size_t{1} << 19) + 3);   // 3 stages behind the first 16
  check_stages<double>((std::size_t{1} << 19) + 3);  // 4 behind the first 15
  check_stages<double>((std::size_t{1} << 22) + 3);  // 7: the most of one pass
  check_stages<double>(std::size_t{1} << 23);        // 8, in two passes
}

TEST(the_inverse_undoes_a_rotation) {
  for (const std::size_t count : {1, 2, 3, 100, 4097, 40'000, 70'001, 140'000}) {
    const Seed seed = seed_of(7);
    const auto values = known_values<double>(count, 1.0, count);
    const std::vector<long double> expected(values.begin(), values.end());
    CHECK(distance(rotated_back(rotated(values, seed, 2, 4.0), seed, 2, 0.25), expected) < 1e-13L);
    CHECK(distance(rotated(rotated_back(values, seed), seed), expected) < 1e-13L);
    const std::vector<float> narrow(values.begin(), values.end());
    CHECK(distance(rotated_back(rotated(narrow, seed), seed), expected) < 1e-5L);
  }
}

TEST(a_rotation_spreads_a_vector_over_all_coordinates) {
  for (const std::size_t count : {4096, 5000, 8191}) {
    std::vector<float> spike(count);
    spike[0] = 3.0F;
    spike[count - 1] = -4.0F;
    // Hoeffding's bound with variance proxy 5^2 / 2^12, and a union over the coordinates.
    const double limit = 5.0 * std::sqrt(2.0 * std::log(2.0 * 8191.0 / kFailure) / 4096.0);
    for (std::uint64_t number = 0; number < 20; ++number) {
      for (const float value : rotated(spike, seed_of(number))) CHECK(std::fabs(value) < limit);
    }
  }
}

TEST(other_seeds_rotate_otherwise) {
  const auto values = known_values<float>(1000, 1.0, 1);
  CHECK(rotated(values, seed_of(1)) != rotated(values, seed_of(2)));
}

TEST(rotations_do_not_depend_on_threads) {
  const auto values = known_values<float>(300'001, 1.0, 1);
  const std::vector<double> wide(values.begin(), values.end());
  const Seed seed = seed_of(3);
  const auto narrow_rotated = rotated(values, seed);
  const auto wide_back = rotated_back(wide, seed);
  for (const std::size_t threads : {0, 2, 5}) {
    CHECK(rotated(values, seed, threads) == narrow_rotated);
    CHECK(rotated_back(wide, seed, threads) == wide_back);
  }
  auto in_place = values;
  noise::rotate<float>(in_place, in_place, seed, 1.0, 2);
  CHECK(in_place == narrow_rotated);
}

TEST(empty_vectors_are_rotated_to_nothing) {
  CHECK(rotated<float>({}, seed_of(1)).empty() && rotated_back<double>({}, seed_of(1)).empty());
}

}  // namespace noise_rotation_tests
