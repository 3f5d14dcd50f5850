// Real values to fixed-point integers, one table for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::scheme {

// Writes round(in[i] * factor) for a factor of at least 1, the product taken in double precision, ties to
// even, for any count. Returns whether all of them are at most `limit` (below 2^40) in magnitude; where not,
// or where a value is NaN or infinite, false, and `out` holds something unspecified. The time taken does not
// depend on the values.
struct QuantiseKernels {
  bool (*quantise_float)(const float* in, std::size_t count, double factor, double limit, std::int64_t* out);
  bool (*quantise_double)(const double* in, std::size_t count, double factor, double limit,
                          std::int64_t* out);
};

extern const QuantiseKernels kQuantiseKernelsScalar;
extern const QuantiseKernels kQuantiseKernelsAvx2;
extern const QuantiseKernels kQuantiseKernelsAvx512;

const QuantiseKernels& quantise_kernels(InstructionSet set);

}  // namespace shieldfl::scheme
