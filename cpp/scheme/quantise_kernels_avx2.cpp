#include <immintrin.h>

#include "scheme/quantise_kernels.h"

namespace shieldfl::scheme {
namespace {

constexpr std::size_t kLanes = 4;

// Adding and subtracting 1.5 * 2^52 rounds to the nearest integer, ties to even; the sum has the integer in
// its low bits, so that nothing else converts it.
constexpr double kRounder = 0x1.8p52;

constexpr double kSmallestNormal = 0x1p-1022;

struct Quantiser {
  __m256d factor;
  __m256d limit;
  __m256d fine;  // all ones in the lanes whose values were all within the limit
  // For each lane, minus the number of zeros that went in and came out.
  __m256i zeros_in = _mm256_setzero_si256();
  __m256i zeros_out = _mm256_setzero_si256();

  Quantiser(double factor_value, double limit_value)
      : factor(_mm256_set1_pd(factor_value)),
        limit(_mm256_set1_pd(limit_value)),
        fine(_mm256_castsi256_pd(_mm256_set1_epi64x(-1))) {}

  static __m256d magnitude_of(__m256d values) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), values); }

  // -1 in the lanes whose magnitude is zero. Bits are compared: subnormal numbers may take longer as numbers.
  static __m256i where_zero(__m256d magnitude) {
    return _mm256_cmpeq_epi64(_mm256_castpd_si256(magnitude), _mm256_setzero_si256());
  }

  __m256i quantise(__m256d values) {
    const __m256d magnitude_in = magnitude_of(values);
    zeros_in = _mm256_add_epi64(zeros_in, where_zero(magnitude_in));
    // Subnormal numbers, which would take longer to multiply, are rounded to zero like their products.
    const __m256d normal = _mm256_cmp_pd(magnitude_in, _mm256_set1_pd(kSmallestNormal), _CMP_NLT_UQ);
    const __m256d rounder = _mm256_set1_pd(kRounder);
    const __m256d sum = _mm256_add_pd(_mm256_mul_pd(_mm256_and_pd(values, normal), factor), rounder);
    const __m256d magnitude = magnitude_of(_mm256_sub_pd(sum, rounder));
    fine = _mm256_and_pd(fine, _mm256_cmp_pd(magnitude, limit, _CMP_LE_OQ));  // false for NaN
    zeros_out = _mm256_add_epi64(zeros_out, where_zero(magnitude));
    return _mm256_sub_epi64(_mm256_castpd_si256(sum), _mm256_castpd_si256(rounder));
  }

  static std::uint64_t sum_of(__m256i lanes) {
    const __m128i pairs = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    return static_cast<std::uint64_t>(_mm_cvtsi128_si64(pairs)) +
           static_cast<std::uint64_t>(_mm_extract_epi64(pairs, 1));
  }

  // After `lanes` values, those of lanes that were loaded as zero included.
  [[nodiscard]] QuantiseVerdict verdict(std::size_t lanes) const {
    return {_mm256_movemask_pd(fine) == 0xF, lanes + sum_of(zeros_in), sum_of(zeros_in) - sum_of(zeros_out)};
  }
};

// The mask of the first `count` < 4 lanes. The others are loaded as zero, whose verdict is false only where
// the factor or the limit makes that of every value false.
inline __m256i first_lanes(std::size_t count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(count)), _mm256_set_epi64x(3, 2, 1, 0));
}

inline __m256d load(const float* from) {
  return _mm256_cvtps_pd(_mm_loadu_ps(from));
}
inline __m256d load(const double* from) {
  return _mm256_loadu_pd(from);
}

inline __m256d load_some(const float* from, std::size_t count) {
  const auto lanes = static_cast<int>(count);
  return _mm256_cvtps_pd(
      _mm_maskload_ps(from, _mm_cmpgt_epi32(_mm_set1_epi32(lanes), _mm_set_epi32(3, 2, 1, 0))));
}

inline __m256d load_some(const double* from, std::size_t count) {
  return _mm256_maskload_pd(from, first_lanes(count));
}

template <typename T>
QuantiseVerdict quantise(const T* in, std::size_t count, double factor, double limit, std::int64_t* out) {
  Quantiser quantiser(factor, limit);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), quantiser.quantise(load(in + i)));
  }
  if (i < count) {
    const __m256i integers = quantiser.quantise(load_some(in + i, count - i));
    _mm256_maskstore_epi64(reinterpret_cast<long long*>(out + i), first_lanes(count - i), integers);
  }
  return quantiser.verdict((count + kLanes - 1) / kLanes * kLanes);
}

}  // namespace

const QuantiseKernels kQuantiseKernelsAvx2 = {quantise<float>, quantise<double>};

}  // namespace shieldfl::scheme
