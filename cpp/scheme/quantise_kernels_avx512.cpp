#include <immintrin.h>

#include "scheme/quantise_kernels.h"

namespace shieldfl::scheme {
namespace {

constexpr std::size_t kLanes = 8;
constexpr __mmask8 kAllLanes = 0xFF;

// The other lanes are zero.
__m512d load(const float* from, __mmask8 lanes) {
  return _mm512_maskz_cvtps_pd(kAllLanes, _mm256_maskz_loadu_ps(lanes, from));
}
__m512d load(const double* from, __mmask8 lanes) {
  return _mm512_maskz_loadu_pd(lanes, from);
}

// The lanes with any of these bits set.
__mmask8 where_set(__m512d values, long long bits) {
  return _mm512_test_epi64_mask(_mm512_castpd_si512(values), _mm512_set1_epi64(bits));
}

struct Quantiser {
  __m512d factor;
  __m512i greatest = _mm512_setzero_si512();
  __m512i nonzero = _mm512_setzero_si512();
  __m512i underflowed = _mm512_setzero_si512();

  explicit Quantiser(double factor_value) : factor(_mm512_set1_pd(factor_value)) {}

  static __m512i count_in(__m512i counts, __mmask8 lanes) {
    return _mm512_mask_add_epi64(counts, lanes, counts, _mm512_set1_epi64(1));
  }

  static std::uint64_t sum_of(__m512i counts) {
    std::uint64_t lanes[kLanes];
    _mm512_storeu_si512(lanes, counts);
    std::uint64_t sum = 0;
    for (const std::uint64_t lane : lanes) sum += lane;
    return sum;
  }

  // Writes the integers; what has none, or none of 64 bits, becomes -2^63.
  template <typename T>
  void quantise(const T* in, __mmask8 lanes, std::int64_t* out) {
    constexpr long long kMagnitude = 0x7FFFFFFFFFFFFFFF;
    constexpr long long kExponent = 0x7FF0000000000000;
    __m512d values = load(in, lanes);
    const __mmask8 not_zero = where_set(values, kMagnitude);
    // Subnormal numbers would take many times as long, and round to zero.
    values = _mm512_maskz_mov_pd(where_set(values, kExponent), values);
    const __m512i integers = _mm512_maskz_cvt_roundpd_epi64(kAllLanes, _mm512_mul_pd(values, factor),
                                                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm512_mask_storeu_epi64(out, lanes, integers);
    greatest = _mm512_maskz_max_epu64(kAllLanes, greatest, _mm512_maskz_abs_epi64(kAllLanes, integers));
    nonzero = count_in(nonzero, not_zero);
    underflowed = count_in(underflowed, _mm512_mask_testn_epi64_mask(not_zero, integers, integers));
  }

  [[nodiscard]] QuantiseVerdict verdict(double limit) const {
    // Exact up to 2^53, and limits are shorter.
    const __m512d greatest_real = _mm512_maskz_cvtepu64_pd(kAllLanes, greatest);
    return {_mm512_cmp_pd_mask(greatest_real, _mm512_set1_pd(limit), _CMP_LE_OQ) == kAllLanes,
            sum_of(nonzero), sum_of(underflowed)};
  }
};

template <typename T>
QuantiseVerdict quantise(const T* in, std::size_t count, double factor, double limit, std::int64_t* out) {
  Quantiser quantiser(factor);
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) quantiser.quantise(in + i, kAllLanes, out + i);
  const auto tail = static_cast<__mmask8>((1U << (count - whole)) - 1);
  quantiser.quantise(in + whole, tail, out + whole);
  return quantiser.verdict(limit);
}

}  // namespace

const QuantiseKernels kQuantiseKernelsAvx512 = {quantise<float>, quantise<double>};

}  // namespace shieldfl::scheme
