// The crc32 instruction takes three cycles but starts every cycle: three stripes of the data go side by side,
// and a carry-less product moves each remainder past the stripes after it.
#include <immintrin.h>

#include "common/crc32c_kernels.h"

namespace shieldfl {
namespace {

// Long enough that joining the stripes costs little; the short ones serve what is left.
constexpr std::size_t kLongStripeBytes = 4096;
constexpr std::size_t kShortStripeBytes = 256;

// The factor that takes a remainder past `bytes` zero bytes, given what `product` leaves to do: x^(8 bytes -
// 33).
constexpr std::uint32_t shift_factor(std::size_t bytes) {
  std::uint32_t power = 0x80000000;  // x^0
  for (std::size_t i = 0; i < 8 * bytes - 33; ++i) {
    power = (power >> 1) ^ ((power & 1) != 0 ? kCrc32cPolynomial : 0);
  }
  return power;
}

std::uint64_t load(const std::uint8_t* data) {
  std::uint64_t word;
  __builtin_memcpy(&word, data, sizeof word);
  return word;
}

// The product has x^1 too many, as a 64-bit remainder, and the crc32 instruction multiplies by x^32.
std::uint64_t product(std::uint64_t remainder, std::uint32_t factor) {
  const __m128i a = _mm_cvtsi64_si128(static_cast<long long>(remainder));
  const __m128i b = _mm_cvtsi64_si128(static_cast<long long>(factor));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_clmulepi64_si128(a, b, 0)));
}

template <std::size_t kStripeBytes>
std::uint64_t advance_three_stripes(std::uint64_t first, const std::uint8_t* data) {
  constexpr std::uint32_t kOverOne = shift_factor(kStripeBytes);
  constexpr std::uint32_t kOverTwo = shift_factor(2 * kStripeBytes);
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  for (std::size_t i = 0; i < kStripeBytes; i += 8) {
    first = _mm_crc32_u64(first, load(data + i));
    second = _mm_crc32_u64(second, load(data + kStripeBytes + i));
    third = _mm_crc32_u64(third, load(data + 2 * kStripeBytes + i));
  }
  return third ^ _mm_crc32_u64(0, product(first, kOverTwo) ^ product(second, kOverOne));
}

std::uint32_t advance(std::uint32_t remainder, const std::uint8_t* data, std::size_t bytes) {
  std::uint64_t state = remainder;
  for (; bytes >= 3 * kLongStripeBytes; data += 3 * kLongStripeBytes, bytes -= 3 * kLongStripeBytes) {
    state = advance_three_stripes<kLongStripeBytes>(state, data);
  }
  for (; bytes >= 3 * kShortStripeBytes; data += 3 * kShortStripeBytes, bytes -= 3 * kShortStripeBytes) {
    state = advance_three_stripes<kShortStripeBytes>(state, data);
  }
  for (; bytes >= 8; data += 8, bytes -= 8) state = _mm_crc32_u64(state, load(data));
  auto result = static_cast<std::uint32_t>(state);
  for (; bytes > 0; ++data, --bytes) result = _mm_crc32_u8(result, *data);
  return result;
}

}  // namespace

const Crc32cKernels kCrc32cKernelsAvx2 = {advance};

}  // namespace shieldfl
