#include "ckks/digits.h"

#include "ring/modulus.h"

namespace shieldfl::ckks {
namespace {

// Division by a fixed q < 2^61 of numbers below 2^63.
class Divisor {
 public:
  explicit Divisor(std::uint64_t q)
      : q_(q), reciprocal_(static_cast<std::uint64_t>((ring::UInt128{1} << 64) / q)) {}

  // Leaves the remainder in `value` and returns the quotient.
  std::uint64_t divide(std::uint64_t& value) const {
    // The estimate is at most one too small: value / 2^64 < 1 is all that rounding the reciprocal costs.
    auto quotient = static_cast<std::uint64_t>((static_cast<ring::UInt128>(value) * reciprocal_) >> 64);
    value -= quotient * q_;
    const std::uint64_t one_more = value >= q_ ? 1 : 0;
    value -= q_ & (0 - one_more);
    return quotient + one_more;
  }

 private:
  std::uint64_t q_;
  std::uint64_t reciprocal_;
};

}  // namespace

void reduce_digits(const ParameterFacts& facts, std::span<std::uint64_t> sums) {
  const Divisor q0(facts.primes[0]);
  if (facts.primes.size() == 1) {
    for (std::uint64_t& sum : sums) q0.divide(sum);
    return;
  }
  const Divisor q1(facts.primes[1]);
  for (const auto half : {sums.first(sums.size() / 2), sums.last(sums.size() / 2)}) {
    for (std::size_t i = 0; i < facts.degree; ++i) {
      half[facts.degree + i] += q0.divide(half[i]);
      q1.divide(half[facts.degree + i]);
    }
  }
}

}  // namespace shieldfl::ckks
