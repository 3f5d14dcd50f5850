#include "scheme/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>
#include <string>

#include "common/error.h"

namespace shieldfl::scheme {
namespace {

// A limit for a message, in six digits whatever its size: rounded down, so that it is itself allowed.
std::string in_short(double limit) {
  const double digits = std::pow(10.0, 5.0 - std::floor(std::log10(limit)));
  std::ostringstream text;
  text << std::floor(limit * digits) / digits;
  return text.str();
}

}  // namespace

std::int64_t FixedPoint::max_magnitude() const {
  return (std::int64_t{1} << (value_bits - 1)) - 1;
}

double FixedPoint::to_real(std::int64_t integer) const {
  return std::ldexp(static_cast<double>(integer), -static_cast<int>(fraction_bits));
}

double FixedPoint::value_limit() const {
  return to_real(max_magnitude());
}

unsigned FixedPoint::weight_fraction_bits() const {
  return std::min(fraction_bits, value_bits - 2);
}

double FixedPoint::weight_step() const {
  return std::ldexp(1.0, -static_cast<int>(weight_fraction_bits()));
}

double FixedPoint::weight_from_value(double opened) const {
  return std::ldexp(opened, static_cast<int>(fraction_bits - weight_fraction_bits()));
}

std::int64_t FixedPoint::quantise_weight(double weight) const {
  const double scaled = std::nearbyint(std::ldexp(weight, static_cast<int>(weight_fraction_bits())));
  require(scaled >= 1.0 && scaled <= static_cast<double>(max_magnitude()),
          "the weight must be at least 2^-" + std::to_string(weight_fraction_bits()) + " and at most " +
              in_short(static_cast<double>(max_magnitude()) * weight_step()) +
              ": divide every client's weight by the largest one");
  return static_cast<std::int64_t>(scaled);
}

unsigned full_guard_bits(std::uint32_t max_clients) {
  return static_cast<unsigned>(std::bit_width(max_clients - 1));
}

std::uint64_t max_sum(const FixedPoint& fixed_point, unsigned field_bits, std::uint64_t clients) {
  const std::uint64_t most_held = (std::uint64_t{1} << (field_bits - 1)) - 1;
  return std::min(clients * static_cast<std::uint64_t>(fixed_point.max_magnitude()), most_held);
}

void check_max_clients(std::uint64_t max_clients) {
  require(max_clients >= 1 && max_clients <= kMaxClients,
          "max_clients must be between 1 and " + std::to_string(kMaxClients));
}

void check_ranges(const FixedPoint& fixed_point, unsigned guard_bits) {
  require(fixed_point.value_bits >= kMinValueBits && fixed_point.value_bits <= kMaxValueBits,
          "value_bits must be between " + std::to_string(kMinValueBits) + " and " +
              std::to_string(kMaxValueBits));
  require(fixed_point.fraction_bits <= kMaxFractionBits,
          "fraction_bits must be between 0 and " + std::to_string(kMaxFractionBits));
  require(fixed_point.value_bits + guard_bits <= kMaxFieldBits,
          "value_bits and the " + std::to_string(guard_bits) + " guard bits for max_clients may be at most " +
              std::to_string(kMaxFieldBits) + " together, so that float64 holds every sum");
}

std::uint8_t check_sums(const FixedPoint& fixed_point, std::uint32_t max_clients,
                        std::optional<unsigned> sum_bits) {
  check_max_clients(max_clients);
  check_ranges(fixed_point, 0);
  const unsigned value_bits = fixed_point.value_bits;
  const unsigned full = value_bits + full_guard_bits(max_clients);
  const unsigned bits = sum_bits.value_or(full);
  if (!sum_bits) check_ranges(fixed_point, bits - value_bits);
  const unsigned most = std::min(full, kMaxFieldBits);
  require(
      value_bits <= bits && bits <= most,
      "sum_bits must be between " + std::to_string(value_bits) + ", which is value_bits, and " +
          std::to_string(most) + ", which " +
          (most < full ? "float64 holds" : "holds any sum of " + std::to_string(max_clients) + " values"));
  return static_cast<std::uint8_t>(full - bits);
}

bool in_ranges(const FixedPoint& fixed_point, unsigned guard_bits, std::uint64_t max_clients) {
  try {
    check_max_clients(max_clients);
    check_ranges(fixed_point, guard_bits);
  } catch (const Error&) {
    return false;
  }
  return true;
}

void refuse_value(const FixedPoint& fixed_point, std::uint64_t position, double value) {
  const std::string at = "the value at position " + std::to_string(position);
  if (!std::isfinite(value)) throw Error(ErrorCode::kRange, at + " is NaN or infinite");
  throw Error(ErrorCode::kRange,
              at + " (times the weight, if any) is above the limit of " +
                  in_short(fixed_point.value_limit()) +
                  " in magnitude: raise value_bits, lower fraction_bits, or pass clip=True");
}

}  // namespace shieldfl::scheme
