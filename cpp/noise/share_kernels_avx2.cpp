#define SHIELDFL_NOISE_LANES 4
#include "noise/share_kernels.h"
#include "noise/share_lanes.h"

namespace shieldfl::noise {

const ShareKernels kShareKernelsAvx2 = {round, add_draws_vartime};

}  // namespace shieldfl::noise
