#include <bit>
#include <limits>

#include "scheme/quantise_kernels.h"

namespace shieldfl::scheme {
namespace {

// Adding and subtracting 1.5 * 2^52 rounds to the nearest integer, ties to even, without a call; a sum with
// it has the integer in its low bits.
constexpr double kRounder = 0x1.8p52;

constexpr std::uint64_t kMagnitude = ~std::uint64_t{0} >> 1;

// In the order of the numbers' magnitudes; infinity comes next, and then what is not a number.
std::uint64_t magnitude_bits(double x) {
  return std::bit_cast<std::uint64_t>(x) & kMagnitude;
}

// 1 if |x| < bound, or else 0, without a branch. Both are below 2^63 as bits.
std::uint64_t is_below(double x, double bound) {
  return (magnitude_bits(x) - magnitude_bits(bound)) >> 63;
}

// 1 if |x| > bound or x is not a number, or else 0.
std::uint64_t is_above(double x, double bound) {
  return (magnitude_bits(bound) - magnitude_bits(x)) >> 63;
}

// 1 if x is not zero, or else 0.
std::uint64_t is_nonzero(double x) {
  return (std::uint64_t{0} - magnitude_bits(x)) >> 63;
}

// 0 if `condition` is 1, x if it is 0, without a branch.
double zero_if(std::uint64_t condition, double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & (condition - 1));
}

template <typename T>
QuantiseVerdict quantise(const T* in, std::size_t count, double factor, double limit, std::int64_t* out) {
  std::uint64_t wrong = 0;
  std::uint64_t nonzero = 0;
  std::uint64_t nonzero_out = 0;
  for (std::size_t i = 0; i < count; ++i) {
    // Subnormal numbers, which would take longer to multiply, are rounded to zero like their products.
    const double value = zero_if(is_below(in[i], std::numeric_limits<double>::min()), in[i]);
    const double rounded = (value * factor + kRounder) - kRounder;
    // Infinite and NaN are above every limit; the conversion below is then of no meaning but defined.
    const std::uint64_t above = is_above(rounded, limit);
    out[i] = static_cast<std::int64_t>(zero_if(above, rounded));
    wrong |= above;
    nonzero += is_nonzero(in[i]);
    nonzero_out += is_nonzero(rounded);
  }
  return {wrong == 0, nonzero, nonzero - nonzero_out};
}

}  // namespace

const QuantiseKernels kQuantiseKernelsScalar = {quantise<float>, quantise<double>};

}  // namespace shieldfl::scheme
