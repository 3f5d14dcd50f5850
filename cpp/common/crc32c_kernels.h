// The inner loop of crc32c.h per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl {

// The polynomial without its x^32, as a remainder: bit 31 - k is the coefficient of x^k, as in every 32-bit
// remainder here.
inline constexpr std::uint32_t kCrc32cPolynomial = 0x82f63b78;

struct Crc32cKernels {
  // Takes the remainder past `bytes` more bytes. A checksum is the complement of the remainder that starts as
  // all ones.
  std::uint32_t (*advance)(std::uint32_t remainder, const std::uint8_t* data, std::size_t bytes);
};

extern const Crc32cKernels kCrc32cKernelsScalar;
extern const Crc32cKernels kCrc32cKernelsAvx2;  // on x86-64 alone
extern const Crc32cKernels kCrc32cKernelsNeon;  // on 64-bit ARM alone

// Precondition: the set is not above best_instruction_set().
const Crc32cKernels& crc32c_kernels(InstructionSet set);

}  // namespace shieldfl
