// The crc32cx instruction takes two or three cycles but starts every cycle: three stripes of the data go side
// by side. The remainders are moved past the stripes after them without the carry-less product of 64 bits,
// which not every 64-bit ARM has.
#include <arm_acle.h>

#include "common/crc32c_kernels.h"

namespace shieldfl {
namespace {

// Long enough that joining the stripes costs little.
constexpr std::size_t kStripeBytes = 4096;

constexpr std::uint32_t times_x(std::uint32_t remainder) {
  return (remainder >> 1) ^ (kCrc32cPolynomial & (0 - (remainder & 1)));
}

// x^(8 bytes): the factor that takes a remainder past as many zero bytes.
constexpr std::uint32_t shift_factor(std::size_t bytes) {
  std::uint32_t power = 0x80000000;  // x^0
  for (std::size_t i = 0; i < 8 * bytes; ++i) power = times_x(power);
  return power;
}

// remainder * kFactor: its bits are known when this is compiled.
template <std::uint32_t kFactor>
std::uint32_t product(std::uint32_t remainder) {
  std::uint32_t sum = 0;
#pragma GCC unroll 32
  for (int i = 0; i < 32; ++i) {
    if ((kFactor << i & 0x80000000) != 0) sum ^= remainder;
    remainder = times_x(remainder);
  }
  return sum;
}

std::uint64_t load(const std::uint8_t* data) {
  std::uint64_t word;
  __builtin_memcpy(&word, data, sizeof word);
  return word;
}

std::uint32_t advance_three_stripes(std::uint32_t first, const std::uint8_t* data) {
  std::uint32_t second = 0;
  std::uint32_t third = 0;
  for (std::size_t i = 0; i < kStripeBytes; i += 8) {
    first = __crc32cd(first, load(data + i));
    second = __crc32cd(second, load(data + kStripeBytes + i));
    third = __crc32cd(third, load(data + 2 * kStripeBytes + i));
  }
  return third ^ product<shift_factor(2 * kStripeBytes)>(first) ^ product<shift_factor(kStripeBytes)>(second);
}

std::uint32_t advance(std::uint32_t remainder, const std::uint8_t* data, std::size_t bytes) {
  for (; bytes >= 3 * kStripeBytes; data += 3 * kStripeBytes, bytes -= 3 * kStripeBytes) {
    remainder = advance_three_stripes(remainder, data);
  }
  for (; bytes >= 8; data += 8, bytes -= 8) remainder = __crc32cd(remainder, load(data));
  for (; bytes > 0; ++data, --bytes) remainder = __crc32cb(remainder, *data);
  return remainder;
}

}  // namespace

const Crc32cKernels kCrc32cKernelsNeon = {advance};

}  // namespace shieldfl
