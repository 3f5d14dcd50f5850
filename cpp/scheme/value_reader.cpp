#include "scheme/value_reader.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/cpu_features.h"
#include "common/taint.h"
#include "common/verify.h"
#include "scheme/quantise_kernels.h"

namespace shieldfl::scheme {

template <typename T>
ValueReader<T>::ValueReader(ValuePieces<T> values, const mask::RankIndex* ranks,
                            const FixedPoint& fixed_point, double weight, bool clip)
    : values_(std::move(values)),
      ranks_(ranks),
      factor_(std::ldexp(weight, static_cast<int>(fixed_point.fraction_bits))),
      max_magnitude_(static_cast<double>(fixed_point.max_magnitude())),
      clip_(clip) {
  VERIFY(factor_ >= 1.0 && max_magnitude_ < 0x1p40);
}

template <typename T>
void ValueReader<T>::read(std::uint64_t first, std::span<std::int64_t> out) {
  std::span<const T> chosen;
  if (ranks_ == nullptr) {
    chosen = values_.read(first, out.size(), gathered_);
  } else {
    gathered_.resize(out.size());
    values_.gather(*ranks_, first, gathered_);
    chosen = gathered_;
  }
  const QuantiseKernels& kernels = quantise_kernels(instruction_set());
  QuantiseVerdict verdict{};
  if constexpr (std::is_same_v<T, float>) {
    verdict = kernels.quantise_float(chosen.data(), chosen.size(), factor_, max_magnitude_, out.data());
  } else {
    verdict = kernels.quantise_double(chosen.data(), chosen.size(), factor_, max_magnitude_, out.data());
  }
  // Whether all values are in range shows anyway: if not, they are refused with an error, or saturated and
  // counted.
  declassify(&verdict.in_range, sizeof verdict.in_range);
  if (verdict.in_range) {
    counts += {verdict.nonzero, verdict.underflowed, 0};
  } else {
    read_one_by_one(first, chosen, out);
  }
}

template <typename T>
void ValueReader<T>::read_one_by_one(std::uint64_t first, std::span<const T> chosen,
                                     std::span<std::int64_t> out) {
  std::vector<std::uint32_t> positions;
  if (ranks_ != nullptr) {
    positions.resize(out.size());
    ranks_->gather_positions(first, out.size(), positions.data());
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto value = static_cast<double>(chosen[i]);
    double quantised = std::nearbyint(value * factor_);
    const bool in_range = std::fabs(quantised) <= max_magnitude_;
    if (!in_range && std::isfinite(value) && clip_) {
      quantised = std::copysign(max_magnitude_, value);
      ++counts.clipped;
    } else if (!in_range) {
      quantised = 0.0;
      refused_position = std::min(refused_position, ranks_ == nullptr ? first + i : positions[i]);
    }
    out[i] = static_cast<std::int64_t>(quantised);
    if (value != 0.0) {
      ++counts.nonzero;
      if (out[i] == 0) ++counts.underflowed;
    }
  }
}

template class ValueReader<float>;
template class ValueReader<double>;

}  // namespace shieldfl::scheme
