#include <immintrin.h>

#include "common/blake2b_lanes.h"

namespace shieldfl {
namespace {

struct Avx2 {
  using Vector = std::uint64_t __attribute__((vector_size(32)));
  static constexpr std::size_t kLanes = 4;

  static __m256i raw(Vector x) { return reinterpret_cast<__m256i>(x); }
  static Vector words(__m256i x) { return reinterpret_cast<Vector>(x); }

  static Vector broadcast(std::uint64_t word) {
    return words(_mm256_set1_epi64x(static_cast<long long>(word)));
  }

  // Whole bytes in one shuffle each; the processor has no rotation.
  template <int bits>
  static Vector rotate_right(Vector x) {
    if constexpr (bits == 32) {
      return words(_mm256_shuffle_epi32(raw(x), 0xb1));
    } else if constexpr (bits % 8 == 0) {
      std::uint8_t order[16];
      for (std::size_t i = 0; i < sizeof order; ++i) {
        order[i] = static_cast<std::uint8_t>(i / 8 * 8 + (i + bits / 8) % 8);
      }
      __m128i half;
      __builtin_memcpy(&half, order, sizeof half);
      return words(_mm256_shuffle_epi8(raw(x), _mm256_broadcastsi128_si256(half)));
    } else {
      return x >> bits | x << (64 - bits);
    }
  }

  // Four words of each lane at a time: pairs, then halves of vectors, change places.
  static void load_block(const std::uint8_t* const* places, Vector* out) {
    for (std::size_t first = 0; first < kMessageWords; first += 4) {
      __m256i rows[4];
      for (std::size_t lane = 0; lane < 4; ++lane) {
        rows[lane] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(places[lane] + 8 * first));
      }
      const __m256i even01 = _mm256_unpacklo_epi64(rows[0], rows[1]);
      const __m256i odd01 = _mm256_unpackhi_epi64(rows[0], rows[1]);
      const __m256i even23 = _mm256_unpacklo_epi64(rows[2], rows[3]);
      const __m256i odd23 = _mm256_unpackhi_epi64(rows[2], rows[3]);
      out[first] = words(_mm256_permute2x128_si256(even01, even23, 0x20));
      out[first + 1] = words(_mm256_permute2x128_si256(odd01, odd23, 0x20));
      out[first + 2] = words(_mm256_permute2x128_si256(even01, even23, 0x31));
      out[first + 3] = words(_mm256_permute2x128_si256(odd01, odd23, 0x31));
    }
  }
};

}  // namespace

const Blake2bKernels kBlake2bKernelsAvx2 = {hash_leaves<Avx2>};

}  // namespace shieldfl
