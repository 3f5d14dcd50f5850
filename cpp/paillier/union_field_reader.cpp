#include "paillier/union_field_reader.h"

#include <algorithm>
#include <vector>

namespace shieldfl::paillier {

template <typename T>
UnionFieldReader<T>::UnionFieldReader(std::span<const T> values, const UnionOrder& order,
                                      const mask::Bitset& mask, const mask::RankIndex& blocks,
                                      std::size_t capacity, const scheme::FixedPoint& fixed_point, bool clip)
    : refused_position(scheme::ValueReader<T>::kNone),
      values_(values),
      order_(order),
      mask_(mask),
      blocks_(blocks),
      capacity_(capacity),
      fixed_point_(fixed_point),
      clip_(clip) {}

template <typename T>
void UnionFieldReader<T>::read(std::uint64_t first, std::span<std::int64_t> out) {
  std::vector<std::uint32_t> blocks(std::min<std::uint64_t>(out.size() / capacity_, blocks_.count() - first));
  blocks_.gather_positions(first, blocks.size(), blocks.data());
  const auto positions = order_.positions();
  const auto visit = [&](auto&& field) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::size_t begin = blocks[i] * capacity_;
      const std::size_t end = std::min(begin + capacity_, positions.size());
      for (std::size_t place = begin; place < end; ++place)
        field(i * capacity_ + place - begin, positions[place]);
    }
  };
  gathered_.assign(out.size(), 0);
  visit([&](std::size_t field, std::uint32_t position) {
    if (mask_.test(position)) gathered_[field] = values_[position];
  });

  scheme::ValueReader<T> reader(scheme::ValuePieces<T>(gathered_), nullptr, fixed_point_, 1.0, clip_);
  reader.read(0, out);
  counts += reader.counts;
  if (reader.refused_position == reader.kNone) return;
  // The lowest position is not the first one in this order.
  visit([&](std::size_t field, std::uint32_t position) {
    scheme::ValueReader<T> one(scheme::ValuePieces<T>(std::span<const T>(gathered_).subspan(field, 1)),
                               nullptr, fixed_point_, 1.0, clip_);
    one.read(0, out.subspan(field, 1));
    if (one.refused_position != one.kNone)
      refused_position = std::min<std::uint64_t>(refused_position, position);
  });
}

template class UnionFieldReader<float>;
template class UnionFieldReader<double>;

}  // namespace shieldfl::paillier
