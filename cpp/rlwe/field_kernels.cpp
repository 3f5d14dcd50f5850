#include "rlwe/field_kernels.h"

namespace shieldfl::rlwe {

const FieldKernels& field_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kFieldKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kFieldKernelsAvx2;
#endif
  return kFieldKernelsScalar;
}

}  // namespace shieldfl::rlwe
