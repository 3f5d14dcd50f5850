#include "common/cpu_features.h"

#ifdef SHIELDFL_NEON_KERNELS
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/error.h"

namespace shieldfl {
namespace {

constexpr std::array kSets = {InstructionSet::kScalar, InstructionSet::kNeon, InstructionSet::kAvx2,
                              InstructionSet::kAvx512};

#if defined(SHIELDFL_X86_KERNELS)
constexpr std::array kSetsOfBuild = {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512};
#elif defined(SHIELDFL_NEON_KERNELS)
constexpr std::array kSetsOfBuild = {InstructionSet::kScalar, InstructionSet::kNeon};
#else
constexpr std::array kSetsOfBuild = {InstructionSet::kScalar};
#endif

// How many of kSetsOfBuild there are here.
std::size_t count_supported() noexcept {
#if defined(SHIELDFL_X86_KERNELS)
  // The compiler's run-time support asks the operating system too whether it saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("sse4.2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512vbmi") &&
                      __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vpopcntdq");
  if (avx512) return 3;
  if (avx2) return 2;
#elif defined(SHIELDFL_NEON_KERNELS)
  if ((getauxval(AT_HWCAP) & (HWCAP_ASIMD | HWCAP_CRC32)) == (HWCAP_ASIMD | HWCAP_CRC32)) return 2;
#endif
  return 1;
}

}  // namespace

const char* instruction_set_name(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kNeon:
      return "neon";
    case InstructionSet::kScalar:
      break;
  }
  return "scalar";
}

std::span<const InstructionSet> all_instruction_sets() noexcept {
  return kSets;
}

std::span<const InstructionSet> supported_instruction_sets() noexcept {
  static const std::size_t supported = count_supported();
  return {kSetsOfBuild.data(), supported};
}

InstructionSet best_instruction_set() noexcept {
  return supported_instruction_sets().back();
}

InstructionSet choose_instruction_set(const char* requested) {
  const std::string_view name = requested == nullptr ? "" : requested;
  if (name.empty()) return best_instruction_set();
  for (const InstructionSet set : supported_instruction_sets()) {
    if (name == instruction_set_name(set)) return set;
  }
  for (const InstructionSet set : all_instruction_sets()) {
    if (name != instruction_set_name(set)) continue;
    throw Error(ErrorCode::kParameter, "SHIELDFL_SIMD asks for " + std::string(name) +
                                           ", which this processor or build does not have: the most is " +
                                           instruction_set_name(best_instruction_set()));
  }
  throw Error(ErrorCode::kParameter, "SHIELDFL_SIMD must be scalar, neon, avx2 or avx512");
}

InstructionSet instruction_set() {
  static const InstructionSet chosen = choose_instruction_set(std::getenv("SHIELDFL_SIMD"));
  return chosen;
}

}  // namespace shieldfl
