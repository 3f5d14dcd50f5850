#include "rlwe/field_packing.h"

#include <algorithm>
#include <cmath>

#include "common/verify.h"
#include "ring/modulus.h"
#include "rlwe/field_kernels.h"
#include "rlwe/wide.h"

namespace shieldfl::rlwe {
namespace {

using ring::Int128;

// Coefficients that are taken apart at a time: their packed numbers stay in the first-level cache, whatever
// the number of their fields.
constexpr std::size_t kTogether = 512;

// The offset that makes each field of a packed number positive, so that none borrows from the next.
Wide field_offset(const FieldShape& shape) {
  Wide offset{};
  for (unsigned field = 0; field < shape.fields; ++field) {
    offset = add(offset, power_of_two(field * shape.field_bits + shape.field_bits - 1));
  }
  return offset;
}

}  // namespace

FieldPacking::FieldPacking(DigitBasis basis, const FieldShape& shape)
    : basis_(std::move(basis)),
      shape_(shape),
      kernels_(ring::row_kernels(instruction_set())),
      field_kernels_(field_kernels(instruction_set())) {
  // A packed number has a bit for the sign; what two primes hold is shorter than 127 bits in any case.
  low_fields_ = basis_.primes().size() <= 2 ? shape.fields : std::min(shape.fields, 127 / shape.field_bits);
  VERIFY(shape.row_values <= basis_.degree() && (shape.fields - low_fields_) * shape.field_bits < 127);
  VERIFY(parts() == 2 || shape.fields * shape.field_bits < 127);
  VERIFY(shape.fields == 0 || shape.log2_scale >= 1);
  for (const std::uint64_t prime : basis_.primes()) {
    for (unsigned field = 0; field < shape.fields; ++field) {
      field_factors_.push_back(
          ring::power_vartime(2, shape.log2_scale + std::uint64_t{field} * shape.field_bits, prime));
    }
  }
  for (std::size_t part = 0; part < parts(); ++part) {
    low_[part].resize(std::min(kTogether, basis_.degree()));
    high_[part].resize(low_[part].size());
  }
}

void FieldPacking::add_message(std::span<const std::int64_t> values, std::size_t count,
                               std::size_t prime_index, std::span<std::uint64_t> row) const {
  VERIFY(values.size() == basis_.degree() * shape_.fields && count <= shape_.values());
  VERIFY(row.size() == basis_.degree() &&
         all_within(values.data(), values.size(), shape_.fixed_point.max_magnitude()));
  const std::uint64_t* factors = field_factors_.data() + prime_index * shape_.fields;
  for (std::size_t field = 0; field * shape_.row_values < count; ++field) {
    kernels_.add_scaled(values.data() + field * row.size(), row.size(), factors[field],
                        basis_.primes()[prime_index], row.data());
  }
}

// The packed integers of some coefficients plus 2^(field_bits - 1) in each field, as 128 bits in low_ and
// high_. Then a sum s is in its field as s + 2^(field_bits - 1), and no field borrows from the next.
void FieldPacking::read_messages(std::span<const std::uint64_t> digits, std::size_t first, std::size_t count,
                                 std::uint64_t too_much) {
  const auto& primes = basis_.primes();
  if (primes.size() > 2) {
    read_long_messages(digits, first, count, too_much);
    return;
  }
  const Wide wide_offset = field_offset(shape_);
  const Int128 offset = static_cast<Int128>((static_cast<UInt128>(wide_offset[1]) << 64) | wide_offset[0]);
  const Int128 half_scale = Int128{1} << (shape_.log2_scale - 1);
  const bool two_primes = primes.size() == 2;
  const Int128 modulus =
      two_primes ? static_cast<Int128>(primes[0]) * static_cast<Int128>(primes[1]) : Int128{primes[0]};
  const Int128 most = modulus / 2 + static_cast<Int128>(too_much);
  const Int128 added = half_scale + (offset << shape_.log2_scale) - static_cast<Int128>(too_much);
  VERIFY(shape_.fields * shape_.field_bits + shape_.log2_scale < 115 && shape_.log2_scale < 64);
  field_kernels_.read_messages({primes[0], modulus, most, added, shape_.log2_scale}, digits.data() + first,
                               two_primes ? digits.data() + basis_.degree() + first : nullptr, count,
                               low_[0].data(), high_[0].data());
}

// The same for more than two primes, whose packed integers have more than 128 bits.
void FieldPacking::read_long_messages(std::span<const std::uint64_t> digits, std::size_t first,
                                      std::size_t count, std::uint64_t too_much) {
  const std::size_t degree = basis_.degree();
  const auto& primes = basis_.primes();
  const Wide modulus = product_of(primes);
  const Wide most = add(shift_down(modulus, 1), Wide{too_much});
  const Wide added = add(power_of_two(shape_.log2_scale - 1), Wide{too_much}, kNegate);
  const Wide offset = field_offset(shape_);
  const unsigned low_bits = low_fields_ * shape_.field_bits;
  const UInt128 low_mask = (static_cast<UInt128>(1) << low_bits) - 1;
  for (std::size_t i = 0; i < count; ++i) {
    Wide message{};
    for (std::size_t p = primes.size(); p-- > 0;) {
      message = multiply_add(message, primes[p], digits[p * degree + first + i]);
    }
    const std::uint64_t above = sign(add(most, message, kNegate));
    Wide centred = modulus;
    for (std::uint64_t& word : centred) word &= above;
    message = add(message, centred, kNegate);
    const Wide packed = add(shift_down(add(message, added), shape_.log2_scale), offset);
    const UInt128 low = ((static_cast<UInt128>(packed[1]) << 64) | packed[0]) & low_mask;
    low_[0][i] = static_cast<std::uint64_t>(low);
    high_[0][i] = static_cast<std::uint64_t>(low >> 64);
    const Wide rest = shift_down(packed, low_bits);
    low_[1][i] = rest[0];
    high_[1][i] = rest[1];
  }
}

bool FieldPacking::read_sums(std::span<std::uint64_t> rows, std::uint64_t clients, std::uint64_t too_much,
                             std::span<double> sums) {
  const std::size_t degree = basis_.degree();
  const std::uint64_t max_sum = scheme::max_sum(shape_.fixed_point, shape_.field_bits, clients);
  const double unit = std::ldexp(1.0, -static_cast<int>(shape_.fixed_point.fraction_bits));
  VERIFY(sums.size() <= shape_.values() && rows.size() == basis_.words());
  VERIFY(all_below(rows.data(), degree, basis_.primes()[0]) && too_much < basis_.primes()[0] / 4);
  basis_.from_residues(rows);
  std::uint64_t wrong = 0;  // not zero once anything is not what it has to be
  for (std::size_t first = 0; first < degree; first += kTogether) {
    const std::size_t count = std::min(kTogether, degree - first);
    read_messages(rows, first, count, too_much);
    for (unsigned field = 0; field < shape_.fields; ++field) {
      const std::size_t part = field < low_fields_ ? 0 : 1;
      std::uint64_t* low = low_[part].data();
      std::uint64_t* high = high_[part].data();
      const auto behind = sums.subspan(std::min(field * shape_.row_values, sums.size()));
      const auto valued = behind.first(std::min(shape_.row_values, behind.size()));
      const auto out = valued.subspan(std::min(first, valued.size()));
      const std::size_t here = std::min(count, out.size());
      wrong |= field_kernels_.take_sums(low, high, here, shape_.field_bits, max_sum, unit, out.data());
      wrong |= field_kernels_.take_zeros(low + here, high + here, count - here, shape_.field_bits);
    }
    for (std::size_t part = 0; part < parts(); ++part) {
      for (std::size_t i = 0; i < count; ++i) wrong |= low_[part][i] | high_[part][i];
    }
  }
  return wrong == 0;
}

}  // namespace shieldfl::rlwe
