#include "mask/word_kernels.h"

namespace shieldfl::mask {

const WordKernels& word_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kWordKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kWordKernelsAvx2;
#endif
#ifdef SHIELDFL_NEON_KERNELS
  if (set == InstructionSet::kNeon) return kWordKernelsNeon;
#endif
  return kWordKernelsScalar;
}

}  // namespace shieldfl::mask
