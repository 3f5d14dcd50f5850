// A client's values, a block at a time: gathered by the mask, checked and quantised.
#pragma once

#include <cstdint>
#include <span>

#include "common/secure_memory.h"
#include "mask/rank_index.h"
#include "scheme/fixed_point.h"
#include "scheme/value_pieces.h"

namespace shieldfl::scheme {

// How values came through, in numbers of values.
struct ValueCounts {
  std::uint64_t nonzero = 0;
  std::uint64_t underflowed = 0;  // of these, rounded to zero
  std::uint64_t clipped = 0;      // saturated

  bool operator==(const ValueCounts&) const = default;
  ValueCounts& operator+=(const ValueCounts& other) {
    nonzero += other.nonzero;
    underflowed += other.underflowed;
    clipped += other.clipped;
    return *this;
  }
};

// One for each thread. Refers to all it is given. T is float or double.
template <typename T>
class ValueReader {
 public:
  // `ranks`: of the mask; null for all positions. `weight` scales the values and is a multiple of
  // the weights' step. `clip`: saturate what is out of range, instead of refusing it.
  ValueReader(ValuePieces<T> values, const mask::RankIndex* ranks, const FixedPoint& fixed_point,
              double weight, bool clip);

  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  // Writes round(value * weight * 2^fraction_bits), ties to even, of the chosen values [first, first +
  // out.size()). Afterwards `refused_position` is the lowest position so far whose value cannot be encrypted,
  // `counts` those of the values so far, unless one was refused. The counts depend on the values.
  void read(std::uint64_t first, std::span<std::int64_t> out);

  ValueCounts counts;
  std::uint64_t refused_position = kNone;

 private:
  void read_one_by_one(std::uint64_t first, std::span<const T> chosen, std::span<std::int64_t> out);

  ValuePieces<T> values_;
  const mask::RankIndex* ranks_;
  double factor_;
  double max_magnitude_;
  bool clip_;
  SecretVector<T> gathered_;
};

}  // namespace shieldfl::scheme
