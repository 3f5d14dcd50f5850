// From real values to fixed-point integers. What is out of range is found before anything is encrypted.
#pragma once

#include <cmath>
#include <cstdint>

#include "ckks/parameters.h"

namespace shieldfl::ckks {

// round(value * weight * 2^fraction_bits), ties to even; `weight` is a multiple of 2^-fraction_bits.
class Quantiser {
 public:
  Quantiser(const ParameterFacts& facts, double weight)
      : factor_(std::ldexp(weight, static_cast<int>(facts.fraction_bits))),
        max_magnitude_(static_cast<double>(facts.max_magnitude())) {}

  enum class Verdict : std::uint8_t { kFine, kOutOfRange, kNotFinite };

  // The integer, as a double that holds it exactly; saturated where the verdict is kOutOfRange.
  Verdict quantise(double value, double& quantised) const {
    quantised = std::nearbyint(value * factor_);
    if (std::fabs(quantised) <= max_magnitude_) return Verdict::kFine;
    if (!std::isfinite(value)) return Verdict::kNotFinite;
    quantised = std::copysign(max_magnitude_, value);
    return Verdict::kOutOfRange;
  }

 private:
  double factor_;
  double max_magnitude_;
};

}  // namespace shieldfl::ckks
