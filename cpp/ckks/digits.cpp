#include "ckks/digits.h"

#include "common/verify.h"
#include "ring/modulus.h"

namespace shieldfl::ckks {
namespace {

// Division by a fixed q < 2^61 of any 64-bit number: a carry may lift a sum above 2^63.
class Divisor {
 public:
  explicit Divisor(std::uint64_t q)
      : q_(q), reciprocal_(static_cast<std::uint64_t>((ring::UInt128{1} << 64) / q)) {
    VERIFY(q < std::uint64_t{1} << 61);
  }

  // Leaves the remainder in `value` and returns the quotient.
  std::uint64_t divide(std::uint64_t& value) const {
    // The estimate is at most one too small: value / 2^64 < 1 is all that rounding the reciprocal costs.
    auto quotient = static_cast<std::uint64_t>((static_cast<ring::UInt128>(value) * reciprocal_) >> 64);
    value -= quotient * q_;
    const std::uint64_t one_more = value >= q_ ? 1 : 0;
    value -= q_ & (0 - one_more);
    VERIFY(value < q_);
    return quotient + one_more;
  }

 private:
  std::uint64_t q_;
  std::uint64_t reciprocal_;
};

}  // namespace

void reduce_digits(const ParameterFacts& facts, std::span<std::uint64_t> sums) {
  VERIFY(sums.size() == facts.block_words() && all_below(sums.data(), sums.size(), std::uint64_t{1} << 63));
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
