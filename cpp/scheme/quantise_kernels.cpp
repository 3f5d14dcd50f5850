#include "scheme/quantise_kernels.h"

namespace shieldfl::scheme {

const QuantiseKernels& quantise_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kQuantiseKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kQuantiseKernelsAvx2;
#endif
  return kQuantiseKernelsScalar;
}

}  // namespace shieldfl::scheme
