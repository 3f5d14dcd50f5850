#include "ckks/packing.h"

#include <algorithm>
#include <cmath>

#include "ckks/field_kernels.h"
#include "common/verify.h"
#include "ring/modulus.h"

namespace shieldfl::ckks {

using ring::Int128;
using ring::UInt128;

ExactPacking::ExactPacking(const Parameters& parameters)
    : parameters_(parameters), kernels_(ring::row_kernels(instruction_set())) {
  const ParameterFacts& facts = parameters.facts();
  for (const std::uint64_t prime : facts.primes) {
    for (unsigned field = 0; field < facts.values_per_coefficient; ++field) {
      const std::uint64_t shift = facts.log2_scale + std::uint64_t{field} * facts.field_bits();
      field_factors_.push_back(ring::power_vartime(2, shift, prime));
    }
  }
}

void ExactPacking::add_message(std::span<const std::int64_t> values, std::size_t count,
                               std::size_t prime_index, std::span<std::uint64_t> row) const {
  const ParameterFacts& facts = parameters_.facts();
  VERIFY(values.size() == facts.values_per_block() && count <= values.size());
  VERIFY(row.size() == facts.degree && all_within(values.data(), values.size(), facts.max_magnitude()));
  VERIFY(all_within(values.data() + count, values.size() - count, 0));
  const std::uint64_t* factors = field_factors_.data() + prime_index * facts.values_per_coefficient;
  for (std::size_t first = 0; first < count; first += row.size(), ++factors) {
    kernels_.add_scaled(values.data() + first, row.size(), *factors, facts.primes[prime_index], row.data());
  }
}

// The packed integer of every coefficient plus 2^(field_bits - 1) in each field, as 128 bits in low_ and
// high_. Then a sum s is in its field as s + 2^(field_bits - 1), and no field borrows from the next.
void ExactPacking::read_messages(std::span<std::uint64_t> rows) {
  const ParameterFacts& facts = parameters_.facts();
  const std::size_t degree = facts.degree;
  low_.resize(degree);
  high_.resize(degree);
  Int128 offset = 0;
  for (unsigned field = 0; field < facts.values_per_coefficient; ++field) {
    offset += Int128{1} << (field * facts.field_bits() + facts.field_bits() - 1);
  }
  const Int128 half_scale = Int128{1} << (facts.log2_scale - 1);
  const std::uint64_t q0 = facts.primes[0];
  const bool two_primes = facts.primes.size() == 2;
  const std::uint64_t* digit1 = rows.data() + degree;
  if (two_primes) {
    kernels_.to_digits(rows.data(), rows.data() + degree, degree, parameters_.digit_inverse(),
                       facts.primes[1]);
  }
  const Int128 modulus =
      two_primes ? static_cast<Int128>(q0) * static_cast<Int128>(facts.primes[1]) : Int128{q0};
  const Int128 half_modulus = modulus / 2;
  for (std::size_t i = 0; i < degree; ++i) {
    Int128 message = rows[i];
    if (two_primes) message += static_cast<Int128>(static_cast<UInt128>(q0) * digit1[i]);
    message -= modulus & ((half_modulus - message) >> 127);  // to (-q/2, q/2]; the noise decides: no branch
    const Int128 packed = ((message + half_scale) >> facts.log2_scale) + offset;
    low_[i] = static_cast<std::uint64_t>(packed);
    high_[i] = static_cast<std::uint64_t>(packed >> 64);
  }
}

bool ExactPacking::read_sums(std::span<std::uint64_t> rows, std::uint64_t clients, std::span<double> sums) {
  const ParameterFacts& facts = parameters_.facts();
  const FieldKernels& kernels = field_kernels(instruction_set());
  const unsigned field_bits = facts.field_bits();
  const std::uint64_t max_sum = clients * static_cast<std::uint64_t>(facts.max_magnitude());
  const double unit = std::ldexp(1.0, -static_cast<int>(facts.fraction_bits));
  VERIFY(clients <= facts.max_clients && sums.size() <= facts.values_per_block());
  VERIFY(rows.size() >= facts.degree * facts.primes.size() &&
         all_below(rows.data(), facts.degree, facts.primes[0]));
  read_messages(rows);
  std::uint64_t wrong = 0;  // not zero once anything is not what it has to be
  for (std::size_t field = 0; field < facts.values_per_coefficient; ++field) {
    const auto here = sums.first(std::min<std::size_t>(facts.degree, sums.size()));
    sums = sums.subspan(here.size());
    wrong |=
        kernels.take_sums(low_.data(), high_.data(), here.size(), field_bits, max_sum, unit, here.data());
    wrong |= kernels.take_zeros(low_.data() + here.size(), high_.data() + here.size(),
                                facts.degree - here.size(), field_bits);
  }
  for (std::size_t i = 0; i < facts.degree; ++i) wrong |= low_[i] | high_[i];
  return wrong == 0;
}

}  // namespace shieldfl::ckks
