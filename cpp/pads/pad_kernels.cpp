#include "pads/pad_kernels.h"

namespace shieldfl::pads {

const PadKernels& pad_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kPadKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kPadKernelsAvx2;
#endif
  return kPadKernelsScalar;
}

}  // namespace shieldfl::pads
