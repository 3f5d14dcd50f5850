// Digits of long exponents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/verify.h"

namespace shieldfl::paillier {

// `bits` bits (1 to 63) of a little-endian number from bit `first_bit` on, which has to be inside the number;
// zeros follow its end. Addresses and branches depend on the positions alone.
inline std::uint64_t exponent_digit(std::span<const std::uint64_t> exponent, std::size_t first_bit,
                                    std::size_t bits) {
  VERIFY(1 <= bits && bits <= 63 && first_bit < 64 * exponent.size());
  const std::size_t word = first_bit / 64;
  const std::size_t shift = first_bit % 64;
  std::uint64_t digit = exponent[word] >> shift;
  if (shift + bits > 64 && word + 1 < exponent.size()) digit |= exponent[word + 1] << (64 - shift);
  return digit & ((std::uint64_t{1} << bits) - 1);
}

}  // namespace shieldfl::paillier
