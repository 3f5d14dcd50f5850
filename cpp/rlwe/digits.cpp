#include "rlwe/digits.h"

#include "common/verify.h"
#include "ring/modulus.h"

namespace shieldfl::rlwe {
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

DigitBasis::DigitBasis(std::size_t degree, std::span<const std::uint64_t> primes)
    : degree_(degree),
      primes_(primes.begin(), primes.end()),
      inverses_(primes.size() * primes.size()),
      kernels_(&ring::row_kernels(instruction_set())) {
  VERIFY(!primes.empty() && primes.size() <= kMaxPrimes);
  for (std::size_t i = 0; i < primes.size(); ++i) {
    for (std::size_t j = i + 1; j < primes.size(); ++j) {
      VERIFY(primes[i] < 2 * primes[j]);
      inverses_[i * primes.size() + j] = ring::inverse_vartime(primes[i] % primes[j], primes[j]);
    }
  }
}

void DigitBasis::from_residues(std::span<std::uint64_t> polynomial) const {
  VERIFY(polynomial.size() == words());
  for (std::size_t i = 0; i < primes_.size(); ++i) {
    for (std::size_t j = i + 1; j < primes_.size(); ++j) {
      kernels_->to_digits(row(polynomial, i).data(), row(polynomial, j).data(), degree_,
                          inverses_[i * primes_.size() + j], primes_[j]);
    }
  }
}

void DigitBasis::to_residues(std::span<std::uint64_t> polynomial) const {
  VERIFY(polynomial.size() == words());
  // From the last row on, so that the rows before it are digits still.
  for (std::size_t j = primes_.size(); j-- > 1;) {
    for (std::size_t i = j; i-- > 0;) {
      kernels_->from_digits(row(polynomial, i).data(), row(polynomial, j).data(), degree_,
                            primes_[i] % primes_[j], primes_[j]);
    }
  }
}

void DigitBasis::reduce(std::span<std::uint64_t> polynomial) const {
  VERIFY(polynomial.size() == words());
  VERIFY(all_below(polynomial.data(), polynomial.size(), std::uint64_t{1} << 63));
  for (std::size_t p = 0; p < primes_.size(); ++p) {
    const Divisor prime(primes_[p]);
    const auto digits = row(polynomial, p);
    if (p + 1 == primes_.size()) {
      for (std::uint64_t& digit : digits) prime.divide(digit);
      continue;
    }
    const auto next = row(polynomial, p + 1);
    for (std::size_t i = 0; i < degree_; ++i) next[i] += prime.divide(digits[i]);
  }
}

}  // namespace shieldfl::rlwe
