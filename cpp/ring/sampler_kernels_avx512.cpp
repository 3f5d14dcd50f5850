#include <immintrin.h>

#include "ring/sampler_kernels.h"

namespace shieldfl::ring {
namespace {

std::size_t ternary(const std::uint64_t* words, const std::uint64_t* rejected, std::size_t pairs,
                    std::int8_t* out) {
  const __m512i minus_one = _mm512_set1_epi8(-1);
  std::size_t kept = 0;
  for (std::size_t p = 0; p < pairs; ++p) {
    const std::uint64_t keep = ~rejected[p];
    const __m512i plus = _mm512_maskz_set1_epi8(words[2 * p], 1);
    const __m512i proposals = _mm512_mask_mov_epi8(plus, words[2 * p + 1], minus_one);
    _mm512_storeu_si512(out + kept, _mm512_maskz_compress_epi8(keep, proposals));
    kept += static_cast<std::size_t>(_mm_popcnt_u64(keep));
  }
  return kept;
}

// Shifts of this type are what the compiler has instructions for.
using Words = std::uint64_t __attribute__((vector_size(64)));

__m512i raw(Words x) {
  return reinterpret_cast<__m512i>(x);
}

// kErrorCoins + popcount of the 21 low bits of x - popcount of the 21 low bits of y's upper half.
Words shifted_difference(Words x, Words y) {
  constexpr std::uint64_t kField = (std::uint64_t{1} << kErrorCoins) - 1;
  const __m512i fields = _mm512_set1_epi64(static_cast<long long>(kField | kField << 32));
  const __m512i inverted = _mm512_set1_epi64(static_cast<long long>(kField << 32));
  // What y lacks of its 21 coins is counted with those of x: (either ^ inverted) & fields.
  const __m512i either = _mm512_mask_blend_epi32(0xaaaa, raw(x), raw(y));
  return reinterpret_cast<Words>(
      _mm512_popcnt_epi64(_mm512_ternarylogic_epi64(either, inverted, fields, 0x28)));
}

void error(const std::uint64_t* words, std::size_t groups, std::int8_t* out) {
  // Byte j of word i goes to sample 8 j + i.
  const __m512i by_byte =
      _mm512_set_epi64(0, 0, 0, 0, 0, 0x3a322a221a120a02, 0x3931292119110901, 0x3830282018100800);
  constexpr __mmask32 kGroup = (__mmask32{1} << kErrorGroupSamples) - 1;
  const __m512i coins = _mm512_set1_epi8(kErrorCoins);
  for (std::size_t group = 0; group < groups; ++group) {
    const auto x = reinterpret_cast<Words>(_mm512_loadu_si512(words));
    const auto y = reinterpret_cast<Words>(_mm512_loadu_si512(words + 8));
    const Words counts = shifted_difference(x, y << 32) | shifted_difference(x >> 21, y << 11) << 8 |
                         shifted_difference(x >> 42, y >> 10) << 16;
    const __m512i samples =
        _mm512_maskz_permutexvar_epi8(kGroup, by_byte, _mm512_sub_epi8(raw(counts), coins));
    // The first 32 bytes on their own: a masked store of 64 would nearly always touch a second cache line.
    _mm256_mask_storeu_epi8(out, kGroup, _mm512_maskz_extracti64x4_epi64(0xf, samples, 0));
    words += kErrorGroupWords;
    out += kErrorGroupSamples;
  }
}

}  // namespace

const SamplerKernels kSamplerKernelsAvx512 = {ternary, error};

}  // namespace shieldfl::ring
