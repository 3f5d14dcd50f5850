// Which instruction set the kernels use: chosen once per process, at run time.
#pragma once

#include <cstdint>

namespace shieldfl {

// Every kernel exists for kScalar; the others are compiled on x86-64 alone. All give the same bits.
enum class InstructionSet : std::uint8_t {
  kScalar,  // plain C++20
  kAvx2,    // AVX2, FMA, BMI2, POPCNT, PCLMULQDQ and SSE 4.2
  kAvx512,  // the above and AVX-512 F, DQ, BW, VL, IFMA, VBMI, VBMI2 and VPOPCNTDQ
};

// "scalar", "avx2" or "avx512": the names that SHIELDFL_SIMD takes.
const char* instruction_set_name(InstructionSet set) noexcept;

// The best set that this processor and operating system support.
InstructionSet best_instruction_set() noexcept;

// `requested` names a set; null or empty means the best one. Throws Error(kParameter) for another name and
// for a set that is not supported here.
InstructionSet choose_instruction_set(const char* requested);

// The set in use: choose_instruction_set of the environment variable SHIELDFL_SIMD at the first call.
InstructionSet instruction_set();

}  // namespace shieldfl
