#include "ring/row_double_lanes.h"
#include "ring/row_kernels.h"

namespace shieldfl::ring {

const RowKernels kRowKernelsNeon = {from_samples, add_samples, add_row, add_scaled, to_digits, from_digits};

}  // namespace shieldfl::ring
