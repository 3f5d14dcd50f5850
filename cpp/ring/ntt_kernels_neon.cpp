#include "ring/ntt_double_lanes.h"
#include "ring/ntt_kernels.h"

namespace shieldfl::ring {

const NttKernels kNttKernelsNeon = {prepare, forward, inverse, multiply_row};

}  // namespace shieldfl::ring
