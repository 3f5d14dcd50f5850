#include "mask/lanes_avx512.h"
#include "mask/vote_algorithms.h"
#include "mask/vote_kernels.h"

namespace shieldfl::mask {

const VoteKernels kVoteKernelsAvx512 = vote_kernels_over<Avx512Lanes>();

}  // namespace shieldfl::mask
