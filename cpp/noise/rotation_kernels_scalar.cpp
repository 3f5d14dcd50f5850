#define SHIELDFL_ROTATION_BYTES 16
#include "noise/rotation_kernels.h"
#include "noise/rotation_lanes.h"

namespace shieldfl::noise {

const FloatRotationKernels kFloatRotationScalar = {scale_and_sign, transform, combine_rows};
const DoubleRotationKernels kDoubleRotationScalar = {scale_and_sign, transform, combine_rows};

}  // namespace shieldfl::noise
