#define SHIELDFL_NOISE_LANES 8
#include "noise/noise_kernels.h"
#include "noise/noise_lanes.h"

namespace shieldfl::noise {

const NoiseKernels kNoiseKernelsAvx512 = {sum_of_squares, scale, scale_and_add_gaussian};

}  // namespace shieldfl::noise
