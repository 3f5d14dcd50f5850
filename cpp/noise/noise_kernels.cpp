#include "noise/noise_kernels.h"

#include "common/cpu_features.h"

namespace shieldfl::noise {

const NoiseKernels& noise_kernels(InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kNoiseKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kNoiseKernelsAvx2;
#endif
  static_cast<void>(set);
  return kNoiseKernelsScalar;
}

}  // namespace shieldfl::noise
