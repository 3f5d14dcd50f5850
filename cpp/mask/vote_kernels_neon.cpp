#include "mask/lanes_neon.h"
#include "mask/vote_algorithms.h"
#include "mask/vote_kernels.h"

namespace shieldfl::mask {

const VoteKernels kVoteKernelsNeon = vote_kernels_over<NeonLanes>();

}  // namespace shieldfl::mask
