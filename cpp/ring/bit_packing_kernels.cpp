#include "ring/bit_packing_kernels.h"

namespace shieldfl::ring {

const BitPackingKernels& bit_packing_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kBitPackingKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kBitPackingKernelsAvx2;
#endif
#ifdef SHIELDFL_NEON_KERNELS
  if (set == InstructionSet::kNeon) return kBitPackingKernelsNeon;
#endif
  return kBitPackingKernelsScalar;
}

}  // namespace shieldfl::ring
