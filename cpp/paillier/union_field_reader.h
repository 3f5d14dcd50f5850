// One client's values in the order of its group's union: zeros where its own mask does not select.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/secure_memory.h"
#include "mask/bitset.h"
#include "mask/rank_index.h"
#include "paillier/union_order.h"
#include "scheme/fixed_point.h"
#include "scheme/value_reader.h"

namespace shieldfl::paillier {

// One for each thread. Refers to all it is given. T is float or double.
template <typename T>
class UnionFieldReader {
 public:
  // `blocks`: the index of order.blocks_of(mask, capacity). `clip`: saturate what is out of range.
  UnionFieldReader(std::span<const T> values, const UnionOrder& order, const mask::Bitset& mask,
                   const mask::RankIndex& blocks, std::size_t capacity, const scheme::FixedPoint& fixed_point,
                   bool clip);

  // Writes the fields of the ciphertexts that are there, from number `first` of them on, as many as `out`
  // holds or as are left; zeros follow. `counts` and `refused_position`, a position of the update, as in
  // scheme/value_reader.h.
  void read(std::uint64_t first, std::span<std::int64_t> out);

  scheme::ValueCounts counts;
  std::uint64_t refused_position;

 private:
  std::span<const T> values_;
  const UnionOrder& order_;
  const mask::Bitset& mask_;
  const mask::RankIndex& blocks_;
  std::size_t capacity_;
  scheme::FixedPoint fixed_point_;
  bool clip_;
  SecretVector<T> gathered_;
};

}  // namespace shieldfl::paillier
