#include <immintrin.h>

#include "ring/bit_packing_pairs.h"

namespace shieldfl::ring {
namespace {

// Two pairs in a vector.
struct Avx2 {
  using Vector = __m256i;
  static constexpr std::size_t kFields = 4;

  static Vector broadcast(std::uint64_t word) { return _mm256_set1_epi64x(static_cast<long long>(word)); }
  static Vector load(const std::uint64_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::uint64_t* to, Vector x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }

  static Vector first(std::size_t count) {
    return _mm256_cmpgt_epi64(broadcast(count), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static Vector load_first(const std::uint64_t* from, std::size_t count) {
    return _mm256_maskload_epi64(reinterpret_cast<const long long*>(from), first(count));
  }
  static void store_first(std::uint64_t* to, std::size_t count, Vector x) {
    _mm256_maskstore_epi64(reinterpret_cast<long long*>(to), first(count), x);
  }

  static Vector load_pairs(const std::uint8_t* bytes, const std::size_t* offsets) {
    const auto* const low = reinterpret_cast<const __m128i*>(bytes + offsets[0]);
    const auto* const high = reinterpret_cast<const __m128i*>(bytes + offsets[1]);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
  }
  static void store_pairs(std::uint8_t* bytes, const std::size_t* offsets, Vector x) {
    auto* const low = reinterpret_cast<__m128i*>(bytes + offsets[0]);
    auto* const high = reinterpret_cast<__m128i*>(bytes + offsets[1]);
    _mm_storeu_si128(low, _mm256_castsi256_si128(x));
    _mm_storeu_si128(high, _mm256_extracti128_si256(x, 1));
  }

  static Vector shuffle_bytes(Vector x, Vector order) { return _mm256_shuffle_epi8(x, order); }

  struct Shift {
    __m128i bits;

    explicit Shift(unsigned count) : bits(_mm_cvtsi32_si128(static_cast<int>(count))) {}
  };
  static Vector left(Vector x, Shift by) { return _mm256_sll_epi64(x, by.bits); }
  static Vector right(Vector x, Shift by) { return _mm256_srl_epi64(x, by.bits); }
  static Vector left_each(Vector x, Vector shifts) { return _mm256_sllv_epi64(x, shifts); }
  static Vector right_each(Vector x, Vector shifts) { return _mm256_srlv_epi64(x, shifts); }

  static Vector even_lanes(Vector x) { return _mm256_blend_epi32(x, _mm256_setzero_si256(), 0xcc); }
  static Vector pairs_before(Vector before, Vector x) { return _mm256_permute2x128_si256(before, x, 0x21); }
  // Not by operators: those of this type are of signed numbers, which must not overflow.
  static Vector sum(Vector a, Vector b) { return _mm256_add_epi64(a, b); }
  static Vector difference(Vector a, Vector b) { return _mm256_sub_epi64(a, b); }
  static bool any_negative(Vector x) { return _mm256_movemask_pd(_mm256_castsi256_pd(x)) != 0; }
};

}  // namespace

const BitPackingKernels kBitPackingKernelsAvx2 = BitPackingPairs<Avx2>::kernels();

}  // namespace shieldfl::ring
