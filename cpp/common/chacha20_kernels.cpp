#include "common/chacha20_kernels.h"

#include "common/cpu_features.h"

namespace shieldfl {

const ChaCha20Kernels& chacha20_kernels(InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kChaCha20KernelsAvx512;
  if (set == InstructionSet::kAvx2) return kChaCha20KernelsAvx2;
#endif
#ifdef SHIELDFL_NEON_KERNELS
  if (set == InstructionSet::kNeon) return kChaCha20KernelsNeon;
#endif
  (void)set;
  return kChaCha20KernelsScalar;
}

}  // namespace shieldfl
