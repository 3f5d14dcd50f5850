#include "mask/gather_kernels.h"

namespace shieldfl::mask {

const GatherKernels& gather_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kGatherKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kGatherKernelsAvx2;
#endif
  return kGatherKernelsScalar;
}

template <>
GatherKernel<float> gather_kernel(InstructionSet set) {
  return gather_kernels(set).floats;
}

template <>
GatherKernel<double> gather_kernel(InstructionSet set) {
  return gather_kernels(set).doubles;
}

}  // namespace shieldfl::mask
