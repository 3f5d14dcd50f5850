// What a client encrypts, a block at a time: its quantised values, and its weight behind the last one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "mask/rank_index.h"
#include "scheme/fixed_point.h"
#include "scheme/layout.h"
#include "scheme/value_pieces.h"
#include "scheme/value_reader.h"

namespace shieldfl::scheme {

// One for each thread. Refers to all it is given. T is float or double.
template <typename T>
class FieldReader {
 public:
  // `ranks`: of the mask; null for all positions. `weight`: as FixedPoint::quantise_weight gives it; there is
  // one if and only if the layout is weighted. `clip`: saturate what is out of range, instead of refusing it.
  FieldReader(ValuePieces<T> values, const mask::RankIndex* ranks, const FixedPoint& fixed_point,
              const Layout& layout, std::optional<std::int64_t> weight, bool clip);

  // Writes block number `block` of as many fields as `out` has entries, zeros behind the last field, and
  // returns how many fields there are (none in a block behind the last). What `reader()` says of refused and
  // saturated values then covers this block too.
  std::size_t read(std::uint64_t block, std::span<std::int64_t> out);

  [[nodiscard]] const ValueReader<T>& reader() const { return reader_; }

 private:
  ValueReader<T> reader_;
  std::uint64_t value_count_;
  std::uint64_t field_count_;
  std::int64_t weight_;
};

}  // namespace shieldfl::scheme
