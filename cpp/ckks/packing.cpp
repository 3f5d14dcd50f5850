#include "ckks/packing.h"

#include "ring/modulus.h"

namespace shieldfl::ckks {

using ring::Int128;

ExactPacking::ExactPacking(const Parameters& parameters) : parameters_(parameters) {
  const ParameterFacts& facts = parameters.facts();
  for (const std::uint64_t prime : facts.primes) {
    for (unsigned field = 0; field < facts.values_per_coefficient; ++field) {
      const std::uint64_t shift = facts.log2_scale + std::uint64_t{field} * facts.field_bits();
      field_factors_.push_back(ring::make_factor(ring::power_vartime(2, shift, prime), prime));
    }
  }
  if (facts.primes.size() == 2) {
    const std::uint64_t q1 = facts.primes[1];
    garner_ = ring::make_factor(ring::inverse_vartime(facts.primes[0] % q1, q1), q1);
  }
}

void ExactPacking::add_message(std::span<const std::int64_t> values, std::size_t prime_index,
                               std::span<std::uint64_t> row) const {
  const ParameterFacts& facts = parameters_.facts();
  const std::uint64_t q = facts.primes[prime_index];
  const ring::Factor* factors = field_factors_.data() + prime_index * facts.values_per_coefficient;
  std::size_t coefficient = 0;
  for (const std::int64_t value : values) {
    // |value| < 2^39 may exceed q: multiply_lazy takes any 64-bit factor, so only the sign needs care, and
    // gets it without a branch.
    const auto negative = static_cast<std::uint64_t>(value >> 63);  // all ones or zero
    const std::uint64_t magnitude = (static_cast<std::uint64_t>(value) ^ negative) - negative;
    const std::uint64_t product = ring::multiply(magnitude, *factors, q);
    const std::uint64_t message = (product & ~negative) | ((q - product) & negative);
    row[coefficient] = ring::add(row[coefficient], message, q);
    if (++coefficient == row.size()) coefficient = 0, ++factors;
  }
}

bool ExactPacking::read_sums(std::span<const std::uint64_t> rows, std::uint64_t clients,
                             std::span<std::int64_t> sums) const {
  const ParameterFacts& facts = parameters_.facts();
  const std::size_t degree = facts.degree;
  const unsigned field_bits = facts.field_bits();
  const Int128 half_scale = Int128{1} << (facts.log2_scale - 1);
  const auto max_sum = static_cast<std::int64_t>(clients) * facts.max_magnitude();
  const std::uint64_t q0 = facts.primes[0];
  bool valid = true;
  for (std::size_t i = 0; i < degree; ++i) {
    Int128 message;
    if (facts.primes.size() == 1) {
      message = ring::centered(rows[i], q0);
    } else {
      // Garner: message = r0 + q0 * ((r1 - r0) / q0 mod q1), then centred.
      const std::uint64_t q1 = facts.primes[1];
      const std::uint64_t difference = ring::add(rows[degree + i], q1 - rows[i] % q1, q1);
      const std::uint64_t quotient = ring::multiply(difference, garner_, q1);
      message = static_cast<Int128>(rows[i]) + static_cast<Int128>(q0) * static_cast<Int128>(quotient);
      const Int128 modulus = static_cast<Int128>(q0) * static_cast<Int128>(q1);
      message -= modulus & -static_cast<Int128>(message > modulus / 2);  // the noise decides: no branch
    }
    message = (message + half_scale) >> facts.log2_scale;
    for (std::size_t field = 0; field < facts.values_per_coefficient; ++field) {
      const unsigned unused = 64 - field_bits;
      const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(message) << unused) >> unused;
      message = (message - sum) >> field_bits;
      const std::size_t index = field * degree + i;
      if (index < sums.size()) {
        sums[index] = sum;
        valid = valid && sum <= max_sum && sum >= -max_sum;
      } else {
        valid = valid && sum == 0;
      }
    }
    valid = valid && message == 0;
  }
  return valid;
}

}  // namespace shieldfl::ckks
