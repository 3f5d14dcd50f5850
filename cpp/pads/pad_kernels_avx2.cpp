#include "pads/pad_kernels.h"
#include "pads/pad_loops.h"

namespace shieldfl::pads {

const PadKernels kPadKernelsAvx2 = {add_short_pads, add_long_pads, take_sums};

}  // namespace shieldfl::pads
