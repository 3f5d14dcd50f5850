#include "ckks/field_kernels.h"
#include "ckks/field_loops.h"

namespace shieldfl::ckks {

const FieldKernels kFieldKernelsAvx512 = {take_sums, take_zeros};

}  // namespace shieldfl::ckks
