#include "tests/constant_time/exchange.h"

#include <cstring>

#include "common/chacha20_kernels.h"
#include "common/cpu_features.h"

namespace shieldfl {
namespace {

std::uint64_t exchange_mask = 0;  // all ones: exchange

const ChaCha20Kernels& actual_kernels() {
#if defined(__x86_64__)
  if (instruction_set() == InstructionSet::kAvx512) return kChaCha20KernelsAvx512;
  if (instruction_set() == InstructionSet::kAvx2) return kChaCha20KernelsAvx2;
#elif defined(__aarch64__)
  if (instruction_set() == InstructionSet::kNeon) return kChaCha20KernelsNeon;
#endif
  return kChaCha20KernelsScalar;
}

// Takes the same steps in either case.
void blocks(const std::uint32_t* state, std::size_t count, std::uint8_t* out) {
  actual_kernels().blocks(state, count, out);
  std::uint64_t pair[2];
  for (std::size_t i = 0; i < count * kChaCha20BlockBytes; i += sizeof pair) {
    std::memcpy(pair, out + i, sizeof pair);
    const std::uint64_t change = (pair[0] ^ pair[1]) & exchange_mask;
    pair[0] ^= change;
    pair[1] ^= change;
    std::memcpy(out + i, pair, sizeof pair);
  }
}

constexpr ChaCha20Kernels kExchangingKernels = {blocks};

}  // namespace

// Stands in for the library's function of this name, which the linker then leaves out.
const ChaCha20Kernels& chacha20_kernels(InstructionSet) {
  return kExchangingKernels;
}

namespace tests {

void exchange_words(bool exchange) {
  exchange_mask = exchange ? ~std::uint64_t{0} : 0;
}

}  // namespace tests
}  // namespace shieldfl
