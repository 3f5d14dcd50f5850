#include <immintrin.h>

#include "rlwe/field_kernels.h"
#include "rlwe/field_loops.h"

namespace shieldfl::rlwe {
namespace {

constexpr unsigned kLimbBits = 52;
// Shifts are the forms that zero what is masked out, and nothing is: the plain ones pass an undefined vector
// in some compilers, which these then warn of.
constexpr __mmask8 kAllLanes = 0xff;

// Numbers of up to 115 bits and a sign, as limbs of 52 bits, which the processor multiplies; the upper one
// has the sign.
struct Limbs {
  __m512i low;
  __m512i high;
};

__m512i broadcast(std::uint64_t word) {
  return _mm512_set1_epi64(static_cast<long long>(word));
}

__m512i low_bits() {
  return broadcast((std::uint64_t{1} << kLimbBits) - 1);
}

Limbs limbs_of(ring::Int128 number) {
  return {_mm512_and_si512(broadcast(static_cast<std::uint64_t>(number)), low_bits()),
          broadcast(static_cast<std::uint64_t>(number >> kLimbBits))};
}

// The same number with all but 52 bits of the lower limb carried.
Limbs carried(Limbs x) {
  return {_mm512_and_si512(x.low, low_bits()),
          _mm512_add_epi64(x.high, _mm512_maskz_srai_epi64(kAllLanes, x.low, kLimbBits))};
}

void read_messages_in_limbs(const MessageRounding& rounding, const std::uint64_t* digit0,
                            const std::uint64_t* digit1, std::size_t count, std::uint64_t* low,
                            std::uint64_t* high) {
  VERIFY(1 <= rounding.shift && rounding.shift < 64);
  const Limbs modulus = limbs_of(rounding.modulus);
  const Limbs most = limbs_of(rounding.most);
  const Limbs added = limbs_of(rounding.added);
  const __m512i q0 = broadcast(rounding.q0);
  const __m128i right = _mm_cvtsi32_si128(static_cast<int>(rounding.shift));
  const __m128i left = _mm_cvtsi32_si128(static_cast<int>(64 - rounding.shift));
  const __m512i zero = _mm512_setzero_si512();
  for (std::size_t i = 0; i < count; i += 8) {
    const auto lanes = static_cast<__mmask8>(count - i >= 8 ? 0xff : (1u << (count - i)) - 1);
    Limbs message{_mm512_maskz_loadu_epi64(lanes, digit0 + i), zero};
    if (digit1 != nullptr) {
      const __m512i upper = _mm512_maskz_loadu_epi64(lanes, digit1 + i);
      message =
          carried({_mm512_madd52lo_epu64(message.low, q0, upper), _mm512_madd52hi_epu64(zero, q0, upper)});
    }
    const __mmask8 above =
        _mm512_cmpgt_epu64_mask(message.high, most.high) |
        (_mm512_cmpeq_epu64_mask(message.high, most.high) & _mm512_cmpgt_epu64_mask(message.low, most.low));
    message.low = _mm512_mask_sub_epi64(message.low, above, message.low, modulus.low);
    message.high = _mm512_mask_sub_epi64(message.high, above, message.high, modulus.high);
    const Limbs sum =
        carried({_mm512_add_epi64(message.low, added.low), _mm512_add_epi64(message.high, added.high)});
    // Now as words of 64 bits, to be shifted.
    const __m512i low_word =
        _mm512_or_si512(sum.low, _mm512_maskz_slli_epi64(kAllLanes, sum.high, kLimbBits));
    const __m512i high_word = _mm512_maskz_srai_epi64(kAllLanes, sum.high, 64 - kLimbBits);
    const __m512i packed = _mm512_or_si512(_mm512_maskz_srl_epi64(kAllLanes, low_word, right),
                                           _mm512_maskz_sll_epi64(kAllLanes, high_word, left));
    _mm512_mask_storeu_epi64(low + i, lanes, packed);
    _mm512_mask_storeu_epi64(high + i, lanes, _mm512_maskz_sra_epi64(kAllLanes, high_word, right));
  }
}

}  // namespace

const FieldKernels kFieldKernelsAvx512 = {read_messages_in_limbs, take_sums, take_zeros};

}  // namespace shieldfl::rlwe
