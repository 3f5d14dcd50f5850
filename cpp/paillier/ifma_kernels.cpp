#include "paillier/ifma_kernels.h"

#include "common/cpu_features.h"

namespace shieldfl::paillier {

const IfmaKernels* ifma_kernels() {
#ifdef SHIELDFL_X86_KERNELS
  if (best_instruction_set() >= InstructionSet::kAvx512) return &kIfmaKernelsAvx512;
#endif
  return nullptr;
}

}  // namespace shieldfl::paillier
