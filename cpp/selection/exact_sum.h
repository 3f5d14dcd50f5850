// Sums of non-negative floats without rounding: they depend on no order and no number of threads, and two of
// them that are equal compare equal.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace shieldfl::selection {

// A multiple of 2^-1074, the smallest double. There is room for 2^32 doubles multiplied by numbers of up to
// 1180 bits; the caller stays below that.
class ExactSum {
 public:
  static constexpr int kLeastExponent = -1074;

  // Adds significand * 2^exponent; exponent >= kLeastExponent.
  void add(std::uint64_t significand, int exponent);
  void add(const ExactSum& other);
  [[nodiscard]] ExactSum times(std::uint64_t factor) const;
  [[nodiscard]] bool is_zero() const;

  friend bool operator==(const ExactSum&, const ExactSum&) = default;
  friend std::strong_ordering operator<=>(const ExactSum& left, const ExactSum& right);
  // part / whole to about the precision of a double; at most 1 where part <= whole. `whole` is not zero.
  friend double ratio(const ExactSum& part, const ExactSum& whole);

 private:
  // From 2^-1074 up to 2^(1024 + 32 + 1180).
  static constexpr std::size_t kLimbs = 52;
  static constexpr int kLimbBits = 64;

  std::array<std::uint64_t, kLimbs> limbs_{};  // the lowest one first
};

}  // namespace shieldfl::selection
