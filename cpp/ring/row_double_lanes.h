// Rows with sums in 64-bit integers and products in double precision, for the instruction-set files that
// include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/verify.h"
#include "ring/double_lanes.h"
#include "ring/row_kernels.h"

namespace shieldfl::ring {
namespace {

// An integer in [-q, q) to its residue.
inline Integers add_if_negative(Integers x, Integers q) {
  return x + (q & negative(x));
}

void from_samples(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(fits_vectors(count, q) && q > 128);
  const Integers prime = broadcast_integer(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    store_integers(row + i, add_if_negative(load_samples(samples + i), prime));
  }
}

void add_samples(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(is_vector_row(row, count, q) && q > 128);
  const Integers prime = broadcast_integer(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Integers sample = load_samples(samples + i);
    // In [-q, 127 - q] or [-128, 0): below 0 in any case, since samples are below q.
    const Integers lowered = sample - (prime & ~negative(sample));
    const Integers sum = load_integers(row + i) + lowered;
    store_integers(row + i, add_if_negative(sum, prime));
  }
}

void add_row(const std::uint64_t* other, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(is_vector_row(row, count, q) && is_vector_row(other, count, q));
  const Integers prime = broadcast_integer(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Integers lowered = load_integers(other + i) - prime;
    const Integers sum = load_integers(row + i) + lowered;
    store_integers(row + i, add_if_negative(sum, prime));
  }
}

inline FactorLanes broadcast_factor(std::uint64_t factor, std::uint64_t q) {
  const double balanced = balanced_factor(factor, q);
  return {broadcast(balanced), broadcast(factor_quotient(balanced, q))};
}

void add_scaled(const std::int64_t* values, std::size_t count, std::uint64_t factor, std::uint64_t q,
                std::uint64_t* row) {
  VERIFY(is_vector_row(row, count, q) && factor < q);
  VERIFY(all_within(values, count, (std::int64_t{1} << 40) - 1));
  const Prime prime = make_prime(q);
  const FactorLanes w = broadcast_factor(factor, q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Lanes value = from_signed(load_integers(values + i));
    const Lanes sum = multiply_add(value, w, from_unsigned(load(row + i)), prime);
    store(row + i, to_residues(sum, prime));
  }
}

void to_digits(const std::uint64_t* row0, std::uint64_t* row1, std::size_t count, std::uint64_t inverse,
               std::uint64_t q1) {
  VERIFY(is_vector_row(row1, count, q1) && inverse < q1 && all_below(row0, count, 2 * q1));
  const Prime prime = make_prime(q1);
  const FactorLanes w = broadcast_factor(inverse, q1);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Integers difference = load_integers(row1 + i) - load_integers(row0 + i);
    store(row1 + i, to_residues(multiply(from_signed(difference), w, prime), prime));
  }
}

void from_digits(const std::uint64_t* row0, std::uint64_t* row1, std::size_t count, std::uint64_t factor,
                 std::uint64_t q1) {
  VERIFY(is_vector_row(row1, count, q1) && factor < q1 && all_below(row0, count, 2 * q1));
  const Prime prime = make_prime(q1);
  const FactorLanes w = broadcast_factor(factor, q1);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Lanes digit1 = from_unsigned(load(row1 + i));
    const Lanes sum = multiply_add(digit1, w, from_unsigned(load(row0 + i)), prime);
    store(row1 + i, to_residues(sum, prime));
  }
}

}  // namespace
}  // namespace shieldfl::ring
