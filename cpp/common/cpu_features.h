// Which instruction set the kernels use: chosen once per process, at run time.
#pragma once

#include <cstdint>
#include <span>

namespace shieldfl {

// Every kernel exists for kScalar. kNeon is compiled for 64-bit ARM alone, kAvx2 and kAvx512 for x86-64
// alone. All give the same bits.
enum class InstructionSet : std::uint8_t {
  kScalar,  // plain C++20
  kNeon,    // Advanced SIMD, which all of 64-bit ARM has, and CRC32, which is an option of ARMv8.0 alone
  kAvx2,    // AVX2, FMA, BMI2, POPCNT, PCLMULQDQ and SSE 4.2
  kAvx512,  // the above and AVX-512 F, DQ, BW, VL, IFMA, VBMI, VBMI2 and VPOPCNTDQ
};

// "scalar", "neon", "avx2" or "avx512": the names that SHIELDFL_SIMD takes.
const char* instruction_set_name(InstructionSet set) noexcept;

// All of them, whatever this processor is.
std::span<const InstructionSet> all_instruction_sets() noexcept;

// What this build, processor and operating system support, from kScalar on: each has what the one before it
// has.
std::span<const InstructionSet> supported_instruction_sets() noexcept;

// The last of them.
InstructionSet best_instruction_set() noexcept;

// `requested` names a set; null or empty means the best one. Throws Error(kParameter) for another name and
// for a set that is not supported here.
InstructionSet choose_instruction_set(const char* requested);

// The set in use: choose_instruction_set of the environment variable SHIELDFL_SIMD at the first call.
InstructionSet instruction_set();

}  // namespace shieldfl
