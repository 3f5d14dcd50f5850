#include "ring/modulus.h"

#include <bit>

#include "common/error.h"

namespace shieldfl::ring {

Modulus::Modulus(std::uint64_t prime) : value(prime), bits(static_cast<unsigned>(std::bit_width(prime))) {
  if (prime <= 2 || bits > 61)
    throw Error(ErrorCode::kParameter, "a modulus must be a prime between 3 and 2^61");
}

std::uint64_t power_vartime(std::uint64_t base, std::uint64_t exponent, std::uint64_t q) {
  UInt128 square = base % q;
  UInt128 result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = result * square % q;
    square = square * square % q;
  }
  return static_cast<std::uint64_t>(result);
}

std::uint64_t inverse_vartime(std::uint64_t a, std::uint64_t q) {
  return power_vartime(a, q - 2, q);
}

}  // namespace shieldfl::ring
