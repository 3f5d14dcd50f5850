#include "mask/lanes_scalar.h"
#include "mask/vote_algorithms.h"
#include "mask/vote_kernels.h"

namespace shieldfl::mask {

const VoteKernels kVoteKernelsScalar = vote_kernels_over<ScalarLanes>();

}  // namespace shieldfl::mask
