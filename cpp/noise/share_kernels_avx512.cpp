#define SHIELDFL_NOISE_LANES 8
#include "noise/share_kernels.h"
#include "noise/share_lanes.h"

namespace shieldfl::noise {

const ShareKernels kShareKernelsAvx512 = {round, add_draws_vartime};

}  // namespace shieldfl::noise
