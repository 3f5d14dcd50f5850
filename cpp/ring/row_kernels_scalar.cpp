#include "common/verify.h"
#include "ring/modulus.h"
#include "ring/row_kernels.h"

namespace shieldfl::ring {
namespace {

void from_samples(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  for (std::size_t i = 0; i < count; ++i) row[i] = residue(samples[i], q);
}

void add_samples(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  for (std::size_t i = 0; i < count; ++i) row[i] = add(row[i], residue(samples[i], q), q);
}

void add_row(const std::uint64_t* other, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  for (std::size_t i = 0; i < count; ++i) row[i] = add(row[i], other[i], q);
}

void add_scaled(const std::int64_t* values, std::size_t count, std::uint64_t factor, std::uint64_t q,
                std::uint64_t* row) {
  const Factor w = make_factor(factor, q);
  for (std::size_t i = 0; i < count; ++i) {
    // multiply takes any 64-bit factor, so only the sign needs care, and gets it without a branch.
    const auto negative = static_cast<std::uint64_t>(values[i] >> 63);  // all ones or zero
    const std::uint64_t magnitude = (static_cast<std::uint64_t>(values[i]) ^ negative) - negative;
    const std::uint64_t product = multiply(magnitude, w, q);
    row[i] = add(row[i], (product & ~negative) | ((q - product) & negative), q);
  }
}

void to_digits(const std::uint64_t* row0, std::uint64_t* row1, std::size_t count, std::uint64_t inverse,
               std::uint64_t q1) {
  const Factor w = make_factor(inverse, q1);
  VERIFY(all_below(row1, count, q1) && all_below(row0, count, 2 * q1));
  for (std::size_t i = 0; i < count; ++i) row1[i] = multiply(row1[i] + 2 * q1 - row0[i], w, q1);
}

void from_digits(const std::uint64_t* row0, std::uint64_t* row1, std::size_t count, std::uint64_t factor,
                 std::uint64_t q1) {
  const Factor w = make_factor(factor, q1);
  for (std::size_t i = 0; i < count; ++i) {
    row1[i] = add(multiply(row1[i], w, q1), subtract_if_above(row0[i], q1), q1);
  }
}

}  // namespace

const RowKernels kRowKernelsScalar = {from_samples, add_samples, add_row, add_scaled, to_digits, from_digits};

}  // namespace shieldfl::ring
