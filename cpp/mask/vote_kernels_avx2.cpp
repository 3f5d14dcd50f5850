#include "mask/lanes_avx2.h"
#include "mask/vote_algorithms.h"
#include "mask/vote_kernels.h"

namespace shieldfl::mask {

const VoteKernels kVoteKernelsAvx2 = vote_kernels_over<Avx2Lanes>();

}  // namespace shieldfl::mask
