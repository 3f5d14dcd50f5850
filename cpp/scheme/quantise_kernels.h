// Real values to fixed-point integers, one table for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::scheme {

struct QuantiseVerdict {
  bool in_range;  // where not, the counts are unspecified
  std::uint64_t nonzero;
  std::uint64_t underflowed;  // not zero, and quantised to zero
};

// Writes round(in[i] * factor) for a factor of at least 1, the product taken in double precision, ties to
// even, for any count. The verdict says whether all of them are at most `limit` (below 2^40) in magnitude;
// where not, or where a value is NaN or infinite, `out` holds something unspecified. The time taken does not
// depend on the values.
struct QuantiseKernels {
  QuantiseVerdict (*quantise_float)(const float* in, std::size_t count, double factor, double limit,
                                    std::int64_t* out);
  QuantiseVerdict (*quantise_double)(const double* in, std::size_t count, double factor, double limit,
                                     std::int64_t* out);
};

extern const QuantiseKernels kQuantiseKernelsScalar;
extern const QuantiseKernels kQuantiseKernelsAvx2;
extern const QuantiseKernels kQuantiseKernelsAvx512;

const QuantiseKernels& quantise_kernels(InstructionSet set);

}  // namespace shieldfl::scheme
