#define SHIELDFL_NOISE_LANES 2
#include "noise/share_kernels.h"
#include "noise/share_lanes.h"

namespace shieldfl::noise {

const ShareKernels kShareKernelsScalar = {round, add_draws_vartime};

}  // namespace shieldfl::noise
