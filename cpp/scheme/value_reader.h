// A client's values, a block at a time: gathered by the mask, checked and quantised.
#pragma once

#include <cstdint>
#include <span>

#include "common/secure_memory.h"
#include "mask/rank_index.h"
#include "scheme/fixed_point.h"

namespace shieldfl::scheme {

// One for each thread. Refers to all it is given. T is float or double.
template <typename T>
class ValueReader {
 public:
  // `ranks`: of the mask; null for all positions. `weight` scales the values and is a multiple of
  // 2^-fraction_bits. `clip`: saturate what is out of range, instead of refusing it.
  ValueReader(std::span<const T> values, const mask::RankIndex* ranks, const FixedPoint& fixed_point,
              double weight, bool clip);

  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  // Writes round(value * weight * 2^fraction_bits), ties to even, of the chosen values [first, first +
  // out.size()). Afterwards `refused_position` is the lowest position so far whose value cannot be encrypted,
  // `clipped` the number of values that were saturated.
  void read(std::uint64_t first, std::span<std::int64_t> out);

  std::uint64_t clipped = 0;
  std::uint64_t refused_position = kNone;

 private:
  void read_one_by_one(std::uint64_t first, std::span<const T> chosen, std::span<std::int64_t> out);

  std::span<const T> values_;
  const mask::RankIndex* ranks_;
  double factor_;
  double max_magnitude_;
  bool clip_;
  SecretVector<T> gathered_;
};

}  // namespace shieldfl::scheme
