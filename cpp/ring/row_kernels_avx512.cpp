// Arithmetic on rows in 52-bit lanes. Sums are kept lazily, in [0, 4q), until the end of each.
#include "common/verify.h"
#include "ring/lanes_avx512.h"
#include "ring/row_kernels.h"

namespace shieldfl::ring {
namespace {

// a in [0, 4q) to [0, q).
Lanes reduce(const Residues& ring, Lanes a) {
  return subtract_if_above(subtract_if_above(a, ring.two_q), ring.q);
}

Factors prepare(const Residues& ring, std::uint64_t factor, std::uint64_t q) {
  return ring.prepare(broadcast(factor), quotient_scale(q));
}

Lanes sample_residues(const Residues& ring, const std::int8_t* samples) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(samples));
  return add_if_negative(_mm512_maskz_cvtepi8_epi64(kAllLanes, bytes), ring.q);
}

void from_samples(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(fits_vectors(count, q) && q > 128);
  const Residues ring(q);
  for (std::size_t i = 0; i < count; i += kLanes) store(row + i, sample_residues(ring, samples + i));
}

void add_samples(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(is_vector_row(row, count, q) && q > 128);
  const Residues ring(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    store(row + i, subtract_if_above(add(load(row + i), sample_residues(ring, samples + i)), ring.q));
  }
}

void add_row(const std::uint64_t* other, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(is_vector_row(row, count, q) && is_vector_row(other, count, q));
  const Residues ring(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    store(row + i, subtract_if_above(add(load(row + i), load(other + i)), ring.q));
  }
}

void add_scaled(const std::int64_t* values, std::size_t count, std::uint64_t factor, std::uint64_t q,
                std::uint64_t* row) {
  VERIFY(is_vector_row(row, count, q) && factor < q);
  VERIFY(all_within(values, count, (std::int64_t{1} << 40) - 1));
  const Residues ring(q);
  const Factors w = prepare(ring, factor, q);
  // Lanes multiply unsigned numbers: 2^40 makes the values positive, and its product is taken off again.
  const Lanes offset = broadcast(std::uint64_t{1} << 40);
  const Lanes correction = subtract(ring.q, ring.multiply(offset, w));
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Lanes positive = add(_mm512_loadu_si512(values + i), offset);
    store(row + i, reduce(ring, ring.add_product(add(load(row + i), correction), positive, w)));
  }
}

void to_digits(const std::uint64_t* row0, std::uint64_t* row1, std::size_t count, std::uint64_t inverse,
               std::uint64_t q1) {
  VERIFY(is_vector_row(row1, count, q1) && inverse < q1 && all_below(row0, count, 2 * q1));
  const Residues ring(q1);
  const Factors w = prepare(ring, inverse, q1);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Lanes difference = subtract(add(load(row1 + i), ring.two_q), load(row0 + i));
    store(row1 + i, ring.multiply(difference, w));
  }
}

void from_digits(const std::uint64_t* row0, std::uint64_t* row1, std::size_t count, std::uint64_t factor,
                 std::uint64_t q1) {
  VERIFY(is_vector_row(row1, count, q1) && factor < q1 && all_below(row0, count, 2 * q1));
  const Residues ring(q1);
  const Factors w = prepare(ring, factor, q1);
  for (std::size_t i = 0; i < count; i += kLanes) {
    store(row1 + i, reduce(ring, ring.add_product(load(row0 + i), load(row1 + i), w)));
  }
}

}  // namespace

const RowKernels kRowKernelsAvx512 = {from_samples, add_samples, add_row, add_scaled, to_digits, from_digits};

}  // namespace shieldfl::ring
