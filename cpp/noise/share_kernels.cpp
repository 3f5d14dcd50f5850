#include "noise/share_kernels.h"

#include "common/cpu_features.h"

namespace shieldfl::noise {

const ShareKernels& share_kernels(InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kShareKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kShareKernelsAvx2;
#endif
  static_cast<void>(set);
  return kShareKernelsScalar;
}

}  // namespace shieldfl::noise
