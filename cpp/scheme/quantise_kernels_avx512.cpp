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

// Subnormal numbers would take many times as long, and round to zero: they are read as such.
__m512d load(const double* from, __mmask8 lanes) {
  constexpr long long kExponent = 0x7FF0000000000000;
  const __m512d values = _mm512_maskz_loadu_pd(lanes, from);
  const __mmask8 normal = _mm512_test_epi64_mask(_mm512_castpd_si512(values), _mm512_set1_epi64(kExponent));
  return _mm512_maskz_mov_pd(normal, values);
}

// Writes the integers; what has none, or none of 64 bits, becomes -2^63. Returns their magnitudes.
template <typename T>
__m512i quantise_lanes(const T* in, __mmask8 lanes, __m512d factor, std::int64_t* out) {
  const __m512i integers = _mm512_maskz_cvt_roundpd_epi64(kAllLanes, _mm512_mul_pd(load(in, lanes), factor),
                                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm512_mask_storeu_epi64(out, lanes, integers);
  return _mm512_maskz_abs_epi64(kAllLanes, integers);
}

template <typename T>
bool quantise(const T* in, std::size_t count, double factor, double limit, std::int64_t* out) {
  const __m512d factors = _mm512_set1_pd(factor);
  const std::size_t whole = count / kLanes * kLanes;
  __m512i greatest = _mm512_setzero_si512();
  for (std::size_t i = 0; i < whole; i += kLanes) {
    const __m512i magnitudes = quantise_lanes(in + i, kAllLanes, factors, out + i);
    greatest = _mm512_maskz_max_epu64(kAllLanes, greatest, magnitudes);
  }
  const auto tail = static_cast<__mmask8>((1U << (count - whole)) - 1);
  const __m512i magnitudes = quantise_lanes(in + whole, tail, factors, out + whole);
  greatest = _mm512_maskz_max_epu64(kAllLanes, greatest, magnitudes);
  // Exact up to 2^53, and limits are shorter.
  const __m512d greatest_real = _mm512_maskz_cvtepu64_pd(kAllLanes, greatest);
  return _mm512_cmp_pd_mask(greatest_real, _mm512_set1_pd(limit), _CMP_LE_OQ) == kAllLanes;
}

}  // namespace

const QuantiseKernels kQuantiseKernelsAvx512 = {quantise<float>, quantise<double>};

}  // namespace shieldfl::scheme
