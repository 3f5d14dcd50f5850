#include "scheme/field_reader.h"

#include <algorithm>
#include <utility>

namespace shieldfl::scheme {

template <typename T>
FieldReader<T>::FieldReader(ValuePieces<T> values, const mask::RankIndex* ranks,
                            const FixedPoint& fixed_point, const Layout& layout,
                            std::optional<std::int64_t> weight, bool clip)
    : reader_(std::move(values), ranks, fixed_point,
              weight ? static_cast<double>(*weight) * fixed_point.weight_step() : 1.0, clip),
      value_count_(layout.value_count),
      field_count_(layout.field_count()),
      weight_(weight.value_or(0)) {}

template <typename T>
std::size_t FieldReader<T>::read(std::uint64_t block, std::span<std::int64_t> out) {
  const std::uint64_t first = std::min(block * out.size(), field_count_);
  const std::uint64_t count = std::min<std::uint64_t>(out.size(), field_count_ - first);
  const std::uint64_t value_end = std::min(first + count, value_count_);
  if (first < value_end) reader_.read(first, out.first(value_end - first));
  if (field_count_ > value_count_ && count > 0 && first + count == field_count_) out[count - 1] = weight_;
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), 0);
  return count;
}

template class FieldReader<float>;
template class FieldReader<double>;

}  // namespace shieldfl::scheme
