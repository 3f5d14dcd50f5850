#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "scheme/value_reader.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace scheme_value_reader_tests {

using namespace shieldfl;
using namespace shieldfl::scheme;

namespace {

struct Reading {
  std::vector<std::int64_t> integers;
  ValueCounts counts;
  std::uint64_t refused_position;

  bool operator==(const Reading&) const = default;
};

// What a reader must give for the chosen positions, one value after another.
template <typename T>
Reading plain_reading(const std::vector<T>& values, const std::vector<std::uint64_t>& positions,
                      const FixedPoint& fixed_point, double weight, bool clip) {
  Reading reading{{}, {}, ValueReader<T>::kNone};
  const auto limit = static_cast<double>(fixed_point.max_magnitude());
  for (const std::uint64_t position : positions) {
    const auto value = static_cast<double>(values[position]);
    double rounded =
        std::nearbyint(value * (weight * std::ldexp(1.0, static_cast<int>(fixed_point.fraction_bits))));
    if (!std::isfinite(value) || (std::fabs(rounded) > limit && !clip)) {
      reading.refused_position = std::min(reading.refused_position, position);
      rounded = 0.0;
    } else if (std::fabs(rounded) > limit) {
      rounded = std::copysign(limit, value);
      ++reading.counts.clipped;
    }
    if (value != 0.0) ++reading.counts.nonzero;
    if (value != 0.0 && rounded == 0.0) ++reading.counts.underflowed;
    reading.integers.push_back(static_cast<std::int64_t>(rounded));
  }
  if (reading.refused_position != ValueReader<T>::kNone) reading.counts = {};
  return reading;
}

// Reads `count` chosen values in pieces.
template <typename T>
Reading read_in_pieces(const std::vector<T>& values, const mask::RankIndex* ranks, std::size_t count,
                       std::size_t piece, const FixedPoint& fixed_point, double weight, bool clip) {
  ValueReader<T> reader(ValuePieces<T>(values), ranks, fixed_point, weight, clip);
  std::vector<std::int64_t> integers(count);
  for (std::size_t first = 0; first < count; first += piece) {
    reader.read(first, std::span(integers).subspan(first, std::min(piece, count - first)));
  }
  // Nothing is said of the counts where a value is refused.
  const bool refused = reader.refused_position != reader.kNone;
  return {integers, refused ? ValueCounts{} : reader.counts, reader.refused_position};
}

// Values of all sizes, now and then one that does not fit, or is no number.
template <typename T>
std::vector<T> mixed_values(std::size_t count, bool bad, std::mt19937_64& generator) {
  std::normal_distribution<double> normal(0.0, 1.0);
  std::vector<T> values(count);
  for (T& value : values)
    value = static_cast<T>(std::ldexp(normal(generator), -static_cast<int>(generator() % 30)));
  for (std::size_t i = 0; i < count; i += 7) values[i] = 0;
  if (!bad) return values;
  const double odd[] = {1e30,
                        -1e30,
                        9.0,
                        -9.0,
                        std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(),
                        std::numeric_limits<double>::quiet_NaN()};
  for (std::size_t i = 0; i < count; ++i) {
    if (generator() % 50 == 0) values[i] = static_cast<T>(odd[generator() % std::size(odd)]);
  }
  return values;
}

std::vector<std::uint64_t> positions_of(const tests::Bools& bools) {
  std::vector<std::uint64_t> positions;
  for (std::size_t i = 0; i < bools.size(); ++i) {
    if (bools[i] != 0) positions.push_back(i);
  }
  return positions;
}

template <typename T>
void check_readings(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  const FixedPoint fixed_point{24, 20};  // up to almost 8
  for (const std::size_t size : tests::kSizes) {
    for (const double density : {0.02, 0.5, 1.0}) {
      tests::Bools bools = tests::random_bools(size, density, generator);
      const mask::Bitset mask = mask::Bitset::from_bools(bools);
      const mask::RankIndex ranks(mask, 1);
      for (const bool masked : {true, false}) {
        if (!masked) bools.assign(size, 1);
        const std::vector<std::uint64_t> positions = positions_of(bools);
        for (const bool bad : {false, true}) {
          const std::vector<T> values = mixed_values<T>(size, bad, generator);
          for (const double weight : {1.0, 0.625, 0x1p-20}) {
            for (const bool clip : {false, true}) {
              const std::size_t piece = 1 + generator() % 700;
              CHECK(read_in_pieces(values, masked ? &ranks : nullptr, positions.size(), piece, fixed_point,
                                   weight,
                                   clip) == plain_reading(values, positions, fixed_point, weight, clip));
            }
          }
        }
      }
    }
  }
}

}  // namespace

TEST(a_value_reader_gathers_rounds_clips_and_refuses) {
  check_readings<float>(161);
  check_readings<double>(162);
}

TEST(a_value_reader_begins_anywhere) {
  std::mt19937_64 generator(163);
  const FixedPoint fixed_point{24, 20};
  const tests::Bools bools = tests::random_bools(20'000, 0.3, generator);
  const mask::Bitset mask = mask::Bitset::from_bools(bools);
  const mask::RankIndex ranks(mask, 1);
  const std::vector<std::uint64_t> positions = positions_of(bools);
  const std::vector<double> values = mixed_values<double>(bools.size(), false, generator);
  const Reading expected = plain_reading(values, positions, fixed_point, 1.0, false);
  ValueReader<double> reader(ValuePieces<double>(values), &ranks, fixed_point, 1.0, false);
  for (int repetition = 0; repetition < 300; ++repetition) {
    const std::size_t first = generator() % positions.size();
    const std::size_t count = generator() % std::min<std::size_t>(positions.size() - first + 1, 300);
    std::vector<std::int64_t> out(count + 1, -77);
    reader.read(first, std::span(out).first(count));
    CHECK(std::equal(out.begin(), out.end() - 1,
                     expected.integers.begin() + static_cast<std::ptrdiff_t>(first)));
    CHECK(out.back() == -77);
  }
  CHECK(reader.counts.clipped == 0 && reader.refused_position == ValueReader<double>::kNone);
}

TEST(the_lowest_refused_position_stands_whatever_order_blocks_are_read_in) {
  const FixedPoint fixed_point{8, 4};
  std::vector<float> values(1000, 0.0F);
  values[300] = values[310] = values[900] = 8.0F;  // 128: one above the limit
  std::vector<std::int64_t> out(100);
  ValueReader<float> reader(ValuePieces<float>(values), nullptr, fixed_point, 1.0, false);
  reader.read(900, out);
  CHECK(reader.refused_position == 900);
  reader.read(300, out);
  CHECK(reader.refused_position == 300);
  reader.read(800, out);
  reader.read(900, out);
  CHECK(reader.refused_position == 300 && reader.counts.clipped == 0);
  // With a mask it is the position in the update, not the rank.
  const mask::Bitset mask =
      ~mask::Bitset::from_indices(std::vector<std::int64_t>{0, 1, 300, 310}, values.size());
  const mask::RankIndex ranks(mask, 1);
  ValueReader<float> masked(ValuePieces<float>(values), &ranks, fixed_point, 1.0, false);
  for (std::size_t first = 0; first + out.size() <= mask.count(); first += out.size())
    masked.read(first, out);
  masked.read(mask.count() - out.size(), out);
  CHECK(masked.refused_position == 900);
}

TEST(limits_hold_for_the_rounded_product) {
  const FixedPoint fixed_point{8, 4};  // at most 127 / 16
  const auto read_one = [&](double value, double weight, bool clip) {
    return read_in_pieces(std::vector<double>{value}, nullptr, 1, 1, fixed_point, weight, clip);
  };
  constexpr std::uint64_t kNone = ValueReader<double>::kNone;
  CHECK((read_one(127.0 / 16, 1.0, false) == Reading{{127}, {1, 0, 0}, kNone}));
  CHECK((read_one(-127.49 / 16, 1.0, false) == Reading{{-127}, {1, 0, 0}, kNone}));
  CHECK((read_one(127.5 / 16, 1.0, false) == Reading{{0}, {}, 0}));  // the tie goes to 128
  CHECK((read_one(127.5 / 16, 1.0, true) == Reading{{127}, {1, 0, 1}, kNone}));
  CHECK((read_one(-1e300, 1.0, true) == Reading{{-127}, {1, 0, 1}, kNone}));
  CHECK((read_one(100.0, 0.0625, false) == Reading{{100}, {1, 0, 0}, kNone}));
  CHECK((read_one(7.0, 2.0, false) == Reading{{0}, {}, 0}));
  CHECK((read_one(7.0, 2.0, true) == Reading{{127}, {1, 0, 1}, kNone}));
  CHECK((read_one(std::numeric_limits<double>::denorm_min(), 1.0, false) == Reading{{0}, {1, 1, 0}, kNone}));
  CHECK((read_one(1.0 / 32, 1.0, false) == Reading{{0}, {1, 1, 0}, kNone}));  // the tie goes to 0
  CHECK((read_one(-0.0, 1.0, false) == Reading{{0}, {}, kNone}));
  // A product that overflows to infinity is out of range, not infinite.
  CHECK((read_one(1.7e308, 7.9375, true) == Reading{{127}, {1, 0, 1}, kNone}));
  CHECK((read_one(std::numeric_limits<double>::infinity(), 1.0, true) == Reading{{0}, {}, 0}));
  CHECK((read_one(std::numeric_limits<double>::quiet_NaN(), 1.0, true) == Reading{{0}, {}, 0}));
}

}  // namespace scheme_value_reader_tests
