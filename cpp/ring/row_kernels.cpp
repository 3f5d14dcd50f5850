#include "ring/row_kernels.h"

#include "common/verify.h"
#include "ring/ntt_kernels.h"

namespace shieldfl::ring {

const RowKernels& row_kernels([[maybe_unused]] InstructionSet set) {
#ifdef SHIELDFL_X86_KERNELS
  if (set == InstructionSet::kAvx512) return kRowKernelsAvx512;
  if (set == InstructionSet::kAvx2) return kRowKernelsAvx2;
#endif
#ifdef SHIELDFL_NEON_KERNELS
  if (set == InstructionSet::kNeon) return kRowKernelsNeon;
#endif
  return kRowKernelsScalar;
}

bool fits_vectors(std::size_t count, std::uint64_t q) {
  return q < kVectorModulusLimit && count % 16 == 0;
}

bool is_vector_row(const std::uint64_t* row, std::size_t count, std::uint64_t q) {
  return fits_vectors(count, q) && all_below(row, count, q);
}

}  // namespace shieldfl::ring
