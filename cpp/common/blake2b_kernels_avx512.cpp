#include <immintrin.h>

#include "common/blake2b_lanes.h"

namespace shieldfl {
namespace {

struct Avx512 {
  using Vector = std::uint64_t __attribute__((vector_size(64)));
  static constexpr std::size_t kLanes = 8;
  // Forms that zero what is masked out, and nothing is: the plain ones pass an undefined vector in some
  // compilers, which these then warn of.
  static constexpr __mmask8 kAll = 0xff;

  static __m512i raw(Vector x) { return reinterpret_cast<__m512i>(x); }
  static Vector words(__m512i x) { return reinterpret_cast<Vector>(x); }

  static Vector broadcast(std::uint64_t word) {
    return words(_mm512_set1_epi64(static_cast<long long>(word)));
  }
  template <int bits>
  static Vector rotate_right(Vector x) {
    return words(_mm512_maskz_ror_epi64(kAll, raw(x), bits));
  }

  static __m512i quarters(__m512i x, __m512i y, bool odd) {
    return odd ? _mm512_maskz_shuffle_i64x2(kAll, x, y, 0xdd) : _mm512_maskz_shuffle_i64x2(kAll, x, y, 0x88);
  }

  // Eight words of each lane at a time: pairs, then quarters of vectors, change places.
  static void load_block(const std::uint8_t* const* places, Vector* out) {
    for (std::size_t first = 0; first < kMessageWords; first += 8) {
      __m512i pairs[2][4];  // word 2k + [0] of quarter k, of lanes 2 [1] and 2 [1] + 1
      for (std::size_t i = 0; i < 4; ++i) {
        const __m512i even = _mm512_loadu_si512(places[2 * i] + 8 * first);
        const __m512i odd = _mm512_loadu_si512(places[2 * i + 1] + 8 * first);
        pairs[0][i] = _mm512_maskz_unpacklo_epi64(kAll, even, odd);
        pairs[1][i] = _mm512_maskz_unpackhi_epi64(kAll, even, odd);
      }
      for (std::size_t parity = 0; parity < 2; ++parity) {
        const __m512i* const of = pairs[parity];
        for (std::size_t half = 0; half < 2; ++half) {
          // Quarters half and half + 2 of the four lanes of each.
          const __m512i front = quarters(of[0], of[1], half != 0);
          const __m512i back = quarters(of[2], of[3], half != 0);
          out[first + parity + 2 * half] = words(quarters(front, back, false));
          out[first + parity + 2 * half + 4] = words(quarters(front, back, true));
        }
      }
    }
  }
};

}  // namespace

const Blake2bKernels kBlake2bKernelsAvx512 = {hash_leaves<Avx512>};

}  // namespace shieldfl
