#include "common/blake2b_kernels.h"

#include "common/cpu_features.h"

namespace shieldfl {

const Blake2bKernels& blake2b_kernels(InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kBlake2bKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kBlake2bKernelsAvx2;
#endif
  (void)set;
  return kBlake2bKernelsScalar;
}

}  // namespace shieldfl
