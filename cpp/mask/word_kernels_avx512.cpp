#include <immintrin.h>

#include "mask/word_kernels.h"

namespace shieldfl::mask {
namespace {

std::uint64_t count(const std::uint64_t* from, std::size_t words) {
  __m512i sums = _mm512_setzero_si512();
  std::size_t w = 0;
  for (; w + 8 <= words; w += 8) {
    sums = _mm512_add_epi64(sums, _mm512_popcnt_epi64(_mm512_loadu_si512(from + w)));
  }
  if (w < words) {
    const auto left = static_cast<__mmask8>((1U << (words - w)) - 1);
    sums = _mm512_add_epi64(sums, _mm512_popcnt_epi64(_mm512_maskz_loadu_epi64(left, from + w)));
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < 8; ++i) total += static_cast<std::uint64_t>(sums[i]);
  return total;
}

std::uint64_t from_bytes(const std::uint8_t* bytes, std::uint64_t* out, std::size_t words) {
  std::uint64_t set = 0;
  for (std::size_t w = 0; w < words; ++w) {
    const __m512i values = _mm512_loadu_si512(bytes + 64 * w);
    out[w] = _mm512_test_epi8_mask(values, values);
    set += static_cast<std::uint64_t>(_mm_popcnt_u64(out[w]));
  }
  return set;
}

void to_bytes(const std::uint64_t* from, std::uint8_t* bytes, std::size_t words) {
  for (std::size_t w = 0; w < words; ++w) {
    _mm512_storeu_si512(bytes + 64 * w, _mm512_maskz_set1_epi8(from[w], 1));
  }
}

}  // namespace

const WordKernels kWordKernelsAvx512 = {count, from_bytes, to_bytes};

}  // namespace shieldfl::mask
