#include "ring/row_kernels.h"

namespace shieldfl::ring {

const RowKernels& row_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kRowKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kRowKernelsAvx2;
#endif
  return kRowKernelsScalar;
}

}  // namespace shieldfl::ring
