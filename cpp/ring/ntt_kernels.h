// The inner loops of the NTT, one table for each instruction set. Everything else about it is in ntt.h.
//
// A *prepared factor* is a fixed factor w < q in the form in which a set multiplies by it fastest: two 64-bit
// words, whose meaning is the set's own. Only rows cross this border, as residues in [0, q).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"

namespace shieldfl::ring {

// What the vector sets ask of a ring; others are left to the scalar set.
inline constexpr std::uint64_t kVectorModulusLimit = std::uint64_t{1} << 50;
inline constexpr std::size_t kVectorMinDegree = 64;

// Powers of the root in bit-reversed order (see ntt.h), prepared; index 0 is not used.
struct NttTable {
  std::size_t degree;
  std::uint64_t q;
  const std::uint64_t* forward_first;
  const std::uint64_t* forward_second;
  const std::uint64_t* inverse_first;
  const std::uint64_t* inverse_second;
  std::uint64_t degree_inverse_first;  // 1 / degree
  std::uint64_t degree_inverse_second;
};

struct NttKernels {
  // Prepares `count` factors in [0, q).
  void (*prepare)(const std::uint64_t* factors, std::size_t count, std::uint64_t q, std::uint64_t* first,
                  std::uint64_t* second);
  // In place, `degree` residues in [0, q) before and after. Constant-time in the values.
  void (*forward)(std::uint64_t* values, const NttTable& table);
  void (*inverse)(std::uint64_t* values, const NttTable& table);
  // out[i] = in[i] * w[i] mod q for residues in [0, q); in and out may be the same. Constant-time.
  void (*multiply)(const std::uint64_t* in, const std::uint64_t* first, const std::uint64_t* second,
                   std::size_t count, std::uint64_t q, std::uint64_t* out);
};

extern const NttKernels kNttKernelsScalar;
extern const NttKernels kNttKernelsNeon;    // on 64-bit ARM alone
extern const NttKernels kNttKernelsAvx2;    // on x86-64 alone
extern const NttKernels kNttKernelsAvx512;  // on x86-64 alone

const NttKernels& ntt_kernels(InstructionSet set);

}  // namespace shieldfl::ring
