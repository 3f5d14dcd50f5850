#include "ring/ntt_kernels.h"

namespace shieldfl::ring {

const NttKernels& ntt_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kNttKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kNttKernelsAvx2;
#endif
#ifdef SHIELDFL_NEON_KERNELS
  if (set == InstructionSet::kNeon) return kNttKernelsNeon;
#endif
  return kNttKernelsScalar;
}

}  // namespace shieldfl::ring
