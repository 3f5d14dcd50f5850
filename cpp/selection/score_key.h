// Non-negative floats as whole numbers in the same order: what selecting by rank works with.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace shieldfl::selection {

// For T = float or double. The key of a score is its bits, which order as the scores do; -0 has that of 0.
template <typename T>
struct ScoreKey {
  using Key = std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;

  static constexpr int kBits = static_cast<int>(sizeof(T)) * 8 - 1;  // all but the sign
  static constexpr int kFractionBits = std::numeric_limits<T>::digits - 1;
  static constexpr Key kInfinity = std::bit_cast<Key>(std::numeric_limits<T>::infinity());

  // Below 2^kBits whatever the score.
  static Key of(T score) { return std::bit_cast<Key>(score) & ((Key{1} << kBits) - 1); }
  // Whether the score is finite and not negative.
  static bool is_valid(T score) { return score >= 0 && score < std::numeric_limits<T>::infinity(); }

  // The score is significand * 2^exponent; keys with equal leading bits, of which there are kBits -
  // kFractionBits, have equal exponents.
  static std::uint64_t significand(Key key) {
    const Key fraction = key & ((Key{1} << kFractionBits) - 1);
    return exponent_field(key) == 0 ? fraction : fraction | (Key{1} << kFractionBits);
  }
  static int exponent(Key key) {
    constexpr int kLeast = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
    const int field = static_cast<int>(exponent_field(key));
    return kLeast + (field == 0 ? 0 : field - 1);
  }

 private:
  static Key exponent_field(Key key) { return key >> kFractionBits; }
};

}  // namespace shieldfl::selection
