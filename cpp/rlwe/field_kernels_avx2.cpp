#include "rlwe/field_kernels.h"
#include "rlwe/field_loops.h"

namespace shieldfl::rlwe {

const FieldKernels kFieldKernelsAvx2 = {read_messages, take_sums, take_zeros};

}  // namespace shieldfl::rlwe
