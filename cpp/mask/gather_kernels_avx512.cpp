#include <immintrin.h>

#include "mask/gather_algorithm.h"

namespace shieldfl::mask {
namespace {

struct Avx512Steps {
  // In a register and then stored whole: a compressing store to memory is far slower.
  static std::size_t whole_word(const float* dense, std::uint64_t word, float* out) {
    std::size_t written = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto part = static_cast<__mmask16>(word >> (16 * i));
      // What is not chosen is not loaded either, nor the cache line that holds nothing else.
      const __m512 values = _mm512_maskz_loadu_ps(part, dense + 16 * i);
      _mm512_storeu_ps(out + written, _mm512_maskz_compress_ps(part, values));
      written += static_cast<std::size_t>(_mm_popcnt_u64(part));
    }
    return written;
  }

  static std::size_t whole_word(const double* dense, std::uint64_t word, double* out) {
    std::size_t written = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const auto part = static_cast<__mmask8>(word >> (8 * i));
      const __m512d values = _mm512_maskz_loadu_pd(part, dense + 8 * i);
      _mm512_storeu_pd(out + written, _mm512_maskz_compress_pd(part, values));
      written += static_cast<std::size_t>(_mm_popcnt_u64(part));
    }
    return written;
  }
};

}  // namespace

const GatherKernels kGatherKernelsAvx512 = gather_kernels_over<Avx512Steps>();

}  // namespace shieldfl::mask
