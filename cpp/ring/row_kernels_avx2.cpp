// Sums in 64-bit integers, products in double precision (lanes_avx2.h).
#include "common/verify.h"
#include "ring/lanes_avx2.h"
#include "ring/row_kernels.h"

namespace shieldfl::ring {
namespace {

inline __m256i load_integers(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

inline __m256i load_samples(const std::int8_t* from) {
  return _mm256_cvtepi8_epi64(_mm_loadu_si32(from));
}

inline __m256i broadcast_integer(std::uint64_t value) {
  return _mm256_set1_epi64x(static_cast<long long>(value));
}

inline __m256i negative(__m256i x) {
  return _mm256_cmpgt_epi64(_mm256_setzero_si256(), x);
}

// An integer in [-q, q) to its residue.
inline __m256i add_if_negative(__m256i x, __m256i q) {
  return _mm256_add_epi64(x, _mm256_and_si256(q, negative(x)));
}

inline void store_integers(std::uint64_t* to, __m256i x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
}

void from_samples(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(fits_vectors(count, q) && q > 128);
  const __m256i prime = broadcast_integer(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    store_integers(row + i, add_if_negative(load_samples(samples + i), prime));
  }
}

void add_samples(const std::int8_t* samples, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(is_vector_row(row, count, q) && q > 128);
  const __m256i prime = broadcast_integer(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const __m256i sample = load_samples(samples + i);
    // In [-q, 127 - q] or [-128, 0): below 0 in any case, since samples are below q.
    const __m256i lowered = _mm256_sub_epi64(sample, _mm256_andnot_si256(negative(sample), prime));
    const __m256i sum = _mm256_add_epi64(load_integers(row + i), lowered);
    store_integers(row + i, add_if_negative(sum, prime));
  }
}

void add_row(const std::uint64_t* other, std::size_t count, std::uint64_t q, std::uint64_t* row) {
  VERIFY(is_vector_row(row, count, q) && is_vector_row(other, count, q));
  const __m256i prime = broadcast_integer(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const __m256i lowered = _mm256_sub_epi64(load_integers(other + i), prime);
    const __m256i sum = _mm256_add_epi64(load_integers(row + i), lowered);
    store_integers(row + i, add_if_negative(sum, prime));
  }
}

inline FactorLanes broadcast_factor(std::uint64_t factor, std::uint64_t q) {
  const double balanced = balanced_factor(factor, q);
  return {_mm256_set1_pd(balanced), _mm256_set1_pd(factor_quotient(balanced, q))};
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
    const __m256i difference = _mm256_sub_epi64(load_integers(row1 + i), load_integers(row0 + i));
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

const RowKernels kRowKernelsAvx2 = {from_samples, add_samples, add_row, add_scaled, to_digits, from_digits};

}  // namespace shieldfl::ring
