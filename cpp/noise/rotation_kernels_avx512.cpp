#define SHIELDFL_ROTATION_BYTES 64
#include "noise/rotation_kernels.h"
#include "noise/rotation_lanes.h"

namespace shieldfl::noise {

const FloatRotationKernels kFloatRotationAvx512 = {scale_and_sign, transform, combine_rows};
const DoubleRotationKernels kDoubleRotationAvx512 = {scale_and_sign, transform, combine_rows};

}  // namespace shieldfl::noise
