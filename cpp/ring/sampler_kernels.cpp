#include "ring/sampler_kernels.h"

#include "common/cpu_features.h"

namespace shieldfl::ring {

const SamplerKernels& sampler_kernels(InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kSamplerKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kSamplerKernelsAvx2;
#endif
#ifdef SHIELDFL_NEON_KERNELS
  if (set == InstructionSet::kNeon) return kSamplerKernelsNeon;
#endif
  (void)set;
  return kSamplerKernelsScalar;
}

}  // namespace shieldfl::ring
