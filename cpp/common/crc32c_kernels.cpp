#include "common/crc32c_kernels.h"

namespace shieldfl {

const Crc32cKernels& crc32c_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  // AVX-512 brings no instruction for this: wide carry-less products are an extension of their own.
  if (set >= InstructionSet::kAvx2) return kCrc32cKernelsAvx2;
#endif
#ifdef SHIELDFL_NEON_KERNELS
  if (set == InstructionSet::kNeon) return kCrc32cKernelsNeon;
#endif
  return kCrc32cKernelsScalar;
}

}  // namespace shieldfl
