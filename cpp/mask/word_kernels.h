// Counting the bits of words, and moving them from and to bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::mask {

struct WordKernels {
  // The bits set in `words` words.
  std::uint64_t (*count)(const std::uint64_t* from, std::size_t words);
  // Word w takes bit i from byte 64 w + i: 1 unless the byte is zero. Returns the bits set.
  std::uint64_t (*from_bytes)(const std::uint8_t* bytes, std::uint64_t* out, std::size_t words);
  // Byte 64 w + i is bit i of word w: 0 or 1.
  void (*to_bytes)(const std::uint64_t* from, std::uint8_t* bytes, std::size_t words);
};

extern const WordKernels kWordKernelsScalar;
extern const WordKernels kWordKernelsNeon;    // on 64-bit ARM alone
extern const WordKernels kWordKernelsAvx2;    // on x86-64 alone
extern const WordKernels kWordKernelsAvx512;  // on x86-64 alone

// The kernels of a set that this processor has.
const WordKernels& word_kernels(InstructionSet set);

}  // namespace shieldfl::mask
