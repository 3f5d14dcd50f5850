#define SHIELDFL_NOISE_LANES 4
#include "noise/noise_kernels.h"
#include "noise/noise_lanes.h"

namespace shieldfl::noise {

const NoiseKernels kNoiseKernelsAvx2 = {sum_of_squares, scale, scale_and_add_gaussian};

}  // namespace shieldfl::noise
