// How values become integers before they are encrypted, whatever the scheme: round(value * 2^fraction_bits),
// ties to even, in `value_bits` bits with the sign.
#pragma once

#include <cstdint>
#include <optional>

namespace shieldfl::scheme {

inline constexpr unsigned kMinValueBits = 2;
inline constexpr unsigned kMaxValueBits = 40;
inline constexpr unsigned kMaxFractionBits = 52;
// Of one value in a sum. Sums are below 2^53 in magnitude: a double holds them exactly.
inline constexpr unsigned kMaxFieldBits = 54;
inline constexpr std::uint32_t kMaxClients = 1U << 20;

struct FixedPoint {
  unsigned value_bits = 24;
  unsigned fraction_bits = 20;

  // Of one quantised value: 2^(value_bits - 1) - 1.
  [[nodiscard]] std::int64_t max_magnitude() const;
  // |value| may be at most this.
  [[nodiscard]] double value_limit() const;
  // A weight's bits behind the point: fraction_bits, or fewer where a weight of 1 would not fit. So the scale
  // of the values can follow small updates, and the weights keep theirs.
  [[nodiscard]] unsigned weight_fraction_bits() const;
  // 2^-weight_fraction_bits().
  [[nodiscard]] double weight_step() const;
  // The weight as the integer that travels, in steps. Throws Error(kParameter) unless it is positive and
  // representable.
  [[nodiscard]] std::int64_t quantise_weight(double weight) const;
  // A sum of weights from the number that it opens to as a value.
  [[nodiscard]] double weight_from_value(double opened) const;
  // 2^-fraction_bits times the integer.
  [[nodiscard]] double to_real(std::int64_t integer) const;
};

// ceil(log2 max_clients): with so many bits more than a value's, a field holds any sum of so many values.
unsigned full_guard_bits(std::uint32_t max_clients);
// The largest magnitude that a sum of `clients` values may have in a field of so many bits, sign included.
std::uint64_t max_sum(const FixedPoint& fixed_point, unsigned field_bits, std::uint64_t clients);

// Throws Error(kParameter), which names the limit, for what is out of the ranges above. `guard_bits`: for
// sums.
void check_ranges(const FixedPoint& fixed_point, unsigned guard_bits);
void check_max_clients(std::uint64_t max_clients);
// Checks both for fields of `sum_bits`, by default as many as hold any sum; returns how many guard bits fewer
// these are. Throws Error(kParameter) for fewer bits than a value's, or more than any sum takes.
std::uint8_t check_sums(const FixedPoint& fixed_point, std::uint32_t max_clients,
                        std::optional<unsigned> sum_bits);
// Whether the first two would pass.
bool in_ranges(const FixedPoint& fixed_point, unsigned guard_bits, std::uint64_t max_clients);

// The Error(kRange) for a value at this position that is NaN, infinite or above the limit.
[[noreturn]] void refuse_value(const FixedPoint& fixed_point, std::uint64_t position, double value);

}  // namespace shieldfl::scheme
