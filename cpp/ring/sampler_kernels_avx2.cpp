#include <immintrin.h>

#include "ring/coin_counts.h"
#include "ring/sampler_kernels.h"

namespace shieldfl::ring {
namespace {

// Byte i is -1 where bit i is set, else 0.
__m256i bits_to_bytes(std::uint32_t bits) {
  const __m256i copies = _mm256_set1_epi32(static_cast<int>(bits));
  const __m256i byte_of_bit =
      _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
  const __m256i bit_of_byte = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  const __m256i chosen = _mm256_and_si256(_mm256_shuffle_epi8(copies, byte_of_bit), bit_of_byte);
  return _mm256_cmpeq_epi8(chosen, bit_of_byte);
}

void write_half(std::uint64_t plus, std::uint64_t minus, std::int8_t* out) {
  const __m256i difference = _mm256_sub_epi8(bits_to_bytes(static_cast<std::uint32_t>(minus)),
                                             bits_to_bytes(static_cast<std::uint32_t>(plus)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), difference);
}

std::size_t ternary(const std::uint64_t* words, const std::uint64_t* rejected, std::size_t pairs,
                    std::int8_t* out) {
  std::size_t kept = 0;
  for (std::size_t p = 0; p < pairs; ++p) {
    // PEXT is slow on some processors, for a time that depends on its mask: on what is rejected alone.
    const std::uint64_t keep = ~rejected[p];
    const std::uint64_t plus = _pext_u64(words[2 * p], keep);
    const std::uint64_t minus = _pext_u64(words[2 * p + 1], keep);
    write_half(plus, minus, out + kept);
    write_half(plus >> 32, minus >> 32, out + kept + 32);
    kept += static_cast<std::size_t>(_mm_popcnt_u64(keep));
  }
  return kept;
}

using Words = std::uint64_t __attribute__((vector_size(32)));

Words load(const std::uint64_t* words) {
  return reinterpret_cast<Words>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)));
}

void error(const std::uint64_t* words, std::size_t groups, std::int8_t* out) {
  // Of four words of four bytes, two words behind each other: bytes 0, 1 and 2 of all, four bytes each.
  const __m256i by_byte =
      _mm256_broadcastsi128_si256(_mm_set_epi8(-1, -1, -1, -1, 14, 6, 10, 2, 13, 5, 9, 1, 12, 4, 8, 0));
  const __m128i coins = _mm_set1_epi8(kErrorCoins);
  for (std::size_t group = 0; group < groups; ++group) {
    const Words low = shifted_differences(load(words), load(words + 8));
    const Words high = shifted_differences(load(words + 4), load(words + 12));
    // 32-bit words 0 4 1 5 | 2 6 3 7 of the group become 0 1 4 5 | 2 3 6 7 in each row, then 0 to 7.
    const __m256i rows = _mm256_shuffle_epi8(reinterpret_cast<__m256i>(low | high << 32), by_byte);
    const __m128i left = _mm256_castsi256_si128(rows);
    const __m128i right = _mm256_extracti128_si256(rows, 1);
    const __m128i first = _mm_sub_epi8(_mm_unpacklo_epi16(left, right), coins);
    const __m128i second = _mm_sub_epi8(_mm_unpackhi_epi16(left, right), coins);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), first);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 16), second);
    words += kErrorGroupWords;
    out += kErrorGroupSamples;
  }
}

}  // namespace

const SamplerKernels kSamplerKernelsAvx2 = {ternary, error};

}  // namespace shieldfl::ring
