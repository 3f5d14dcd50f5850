#include "mask/vote_kernels.h"

namespace shieldfl::mask {

const VoteKernels& vote_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kVoteKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kVoteKernelsAvx2;
#endif
#ifdef SHIELDFL_NEON_KERNELS
  if (set == InstructionSet::kNeon) return kVoteKernelsNeon;
#endif
  return kVoteKernelsScalar;
}

}  // namespace shieldfl::mask
