// ChaCha20's block function (RFC 8439), many blocks at a time. The stream over it is in random.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl {

enum class InstructionSet : std::uint8_t;

inline constexpr std::size_t kChaCha20BlockBytes = 64;

struct ChaCha20Kernels {
  // Writes `blocks` successive blocks. `state` is the 16 words of RFC 8439, section 2.3, which stay as they
  // are; the first block's counter is state[12], and counters go on from 2^32 - 1 to 0. `out` need not be
  // aligned. Constant-time, and nothing secret is left in memory.
  void (*blocks)(const std::uint32_t* state, std::size_t blocks, std::uint8_t* out);
};

extern const ChaCha20Kernels kChaCha20KernelsScalar;
extern const ChaCha20Kernels kChaCha20KernelsNeon;    // on 64-bit ARM alone
extern const ChaCha20Kernels kChaCha20KernelsAvx2;    // on x86-64 alone
extern const ChaCha20Kernels kChaCha20KernelsAvx512;  // on x86-64 alone

// `set` is at most best_instruction_set().
const ChaCha20Kernels& chacha20_kernels(InstructionSet set);

}  // namespace shieldfl
