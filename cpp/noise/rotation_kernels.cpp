#include "noise/rotation_kernels.h"

#include "common/cpu_features.h"

namespace shieldfl::noise {

template <>
const RotationKernels<float>& rotation_kernels<float>(InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kFloatRotationAvx512;
  if (set == InstructionSet::kAvx2) return kFloatRotationAvx2;
#endif
  static_cast<void>(set);
  return kFloatRotationScalar;
}

template <>
const RotationKernels<double>& rotation_kernels<double>(InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kDoubleRotationAvx512;
  if (set == InstructionSet::kAvx2) return kDoubleRotationAvx2;
#endif
  static_cast<void>(set);
  return kDoubleRotationScalar;
}

}  // namespace shieldfl::noise
