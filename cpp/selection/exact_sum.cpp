#include "selection/exact_sum.h"

#include <algorithm>
#include <cmath>

#include "common/verify.h"

namespace shieldfl::selection {
namespace {

__extension__ using UInt128 = unsigned __int128;

}  // namespace

void ExactSum::add(std::uint64_t significand, int exponent) {
  VERIFY(exponent >= kLeastExponent);
  const int shift = exponent - kLeastExponent;
  UInt128 rest = static_cast<UInt128>(significand) << (shift % kLimbBits);
  for (auto i = static_cast<std::size_t>(shift / kLimbBits); rest != 0; ++i) {
    rest += limbs_.at(i);
    limbs_[i] = static_cast<std::uint64_t>(rest);
    rest >>= kLimbBits;
  }
}

void ExactSum::add(const ExactSum& other) {
  UInt128 carry = 0;
  for (std::size_t i = 0; i < kLimbs; ++i) {
    carry += static_cast<UInt128>(limbs_[i]) + other.limbs_[i];
    limbs_[i] = static_cast<std::uint64_t>(carry);
    carry >>= kLimbBits;
  }
  VERIFY(carry == 0);
}

ExactSum ExactSum::times(std::uint64_t factor) const {
  ExactSum product;
  UInt128 carry = 0;
  for (std::size_t i = 0; i < kLimbs; ++i) {
    carry += static_cast<UInt128>(limbs_[i]) * factor;
    product.limbs_[i] = static_cast<std::uint64_t>(carry);
    carry >>= kLimbBits;
  }
  VERIFY(carry == 0);
  return product;
}

bool ExactSum::is_zero() const {
  return std::ranges::all_of(limbs_, [](std::uint64_t limb) { return limb == 0; });
}

std::strong_ordering operator<=>(const ExactSum& left, const ExactSum& right) {
  return std::lexicographical_compare_three_way(left.limbs_.rbegin(), left.limbs_.rend(),
                                                right.limbs_.rbegin(), right.limbs_.rend());
}

double ratio(const ExactSum& part, const ExactSum& whole) {
  VERIFY(!whole.is_zero());
  std::size_t top = ExactSum::kLimbs - 1;
  while (top > 0 && whole.limbs_[top] == 0) --top;
  // Both in units of the whole's highest limb; what lies two limbs below it is lost in a double.
  const auto leading = [top](const ExactSum& sum) {
    double value = 0.0;
    for (std::size_t below = std::min<std::size_t>(top, 2) + 1; below-- > 0;) {
      value += std::ldexp(static_cast<double>(sum.limbs_[top - below]),
                          -ExactSum::kLimbBits * static_cast<int>(below));
    }
    return value;
  };
  return leading(part) / leading(whole);
}

}  // namespace shieldfl::selection
