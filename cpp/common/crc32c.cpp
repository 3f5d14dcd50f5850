#include "common/crc32c.h"

#include <array>

#include "common/cpu_features.h"
#include "common/crc32c_kernels.h"

namespace shieldfl {
namespace {

// a * b modulo the polynomial, without branches on either.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int i = 0; i < 32; ++i) {
    product ^= b & (0 - (a >> 31));
    a <<= 1;
    b = (b >> 1) ^ (kCrc32cPolynomial & (0 - (b & 1)));  // times x
  }
  return product;
}

constexpr std::uint32_t kOne = 0x80000000;

using Powers = std::array<std::array<std::uint32_t, 16>, 16>;

// powers[k][digit] is x^(8 * digit * 16^k): what digit k of a length in hexadecimal contributes.
constexpr Powers make_powers() {
  Powers powers{};
  std::uint32_t base = kOne >> 8;  // x^8
  for (auto& row : powers) {
    row[0] = kOne;
    for (std::size_t digit = 1; digit < row.size(); ++digit) row[digit] = multiply(row[digit - 1], base);
    base = multiply(row.back(), base);
  }
  return powers;
}

constexpr Powers kPowers = make_powers();

}  // namespace

std::uint32_t crc32c(std::span<const std::uint8_t> data, std::uint32_t previous) {
  return ~crc32c_kernels(instruction_set()).advance(~previous, data.data(), data.size());
}

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_length) {
  for (std::size_t k = 0; second_length != 0; ++k, second_length >>= 4) {
    first = multiply(first, kPowers[k][second_length & 0xf]);
  }
  return first ^ second;
}

}  // namespace shieldfl
