#include <immintrin.h>

#include "mask/word_kernels.h"

namespace shieldfl::mask {
namespace {

std::uint64_t bits_in(std::uint64_t word) {
  return static_cast<std::uint64_t>(_mm_popcnt_u64(word));
}

std::uint64_t count(const std::uint64_t* from, std::size_t words) {
  std::uint64_t sums[4] = {};  // several, so that none waits for the one before
  std::size_t w = 0;
  for (; w + 4 <= words; w += 4) {
    for (std::size_t k = 0; k < 4; ++k) sums[k] += bits_in(from[w + k]);
  }
  for (; w < words; ++w) sums[0] += bits_in(from[w]);
  return sums[0] + sums[1] + sums[2] + sums[3];
}

std::uint64_t half_word(const std::uint8_t* bytes) {
  const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  const __m256i zeros = _mm256_cmpeq_epi8(values, _mm256_setzero_si256());
  return ~static_cast<std::uint32_t>(_mm256_movemask_epi8(zeros));
}

std::uint64_t from_bytes(const std::uint8_t* bytes, std::uint64_t* out, std::size_t words) {
  std::uint64_t set = 0;
  for (std::size_t w = 0; w < words; ++w) {
    out[w] = half_word(bytes + 64 * w) | half_word(bytes + 64 * w + 32) << 32;
    set += bits_in(out[w]);
  }
  return set;
}

void half_to_bytes(std::uint32_t bits, std::uint8_t* bytes) {
  // Byte i of the vector gets byte i / 8 of the bits, and looks at bit i % 8 of that.
  const __m256i spread =
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)),
                          _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i own_bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  const __m256i chosen = _mm256_cmpeq_epi8(_mm256_and_si256(spread, own_bit), own_bit);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), _mm256_and_si256(chosen, _mm256_set1_epi8(1)));
}

void to_bytes(const std::uint64_t* from, std::uint8_t* bytes, std::size_t words) {
  for (std::size_t w = 0; w < words; ++w) {
    half_to_bytes(static_cast<std::uint32_t>(from[w]), bytes + 64 * w);
    half_to_bytes(static_cast<std::uint32_t>(from[w] >> 32), bytes + 64 * w + 32);
  }
}

}  // namespace

const WordKernels kWordKernelsAvx2 = {count, from_bytes, to_bytes};

}  // namespace shieldfl::mask
