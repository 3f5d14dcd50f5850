#include "common/cpu_features.h"

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/error.h"

namespace shieldfl {
namespace {

constexpr std::array kSets = {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512};

}  // namespace

const char* instruction_set_name(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kScalar:
      break;
  }
  return "scalar";
}

InstructionSet best_instruction_set() noexcept {
#ifdef SHIELDFL_X86_KERNELS
  // The compiler's run-time support asks the operating system too whether it saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("sse4.2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512vbmi") &&
                      __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vpopcntdq");
  if (avx512) return InstructionSet::kAvx512;
  if (avx2) return InstructionSet::kAvx2;
#endif
  return InstructionSet::kScalar;
}

InstructionSet choose_instruction_set(const char* requested) {
  const std::string_view name = requested == nullptr ? "" : requested;
  const InstructionSet best = best_instruction_set();
  if (name.empty()) return best;
  for (const InstructionSet set : kSets) {
    if (name != instruction_set_name(set)) continue;
    if (set <= best) return set;
    throw Error(ErrorCode::kParameter, "SHIELDFL_SIMD asks for " + std::string(name) +
                                           ", which this processor or build does not have: the most is " +
                                           instruction_set_name(best));
  }
  throw Error(ErrorCode::kParameter, "SHIELDFL_SIMD must be scalar, avx2 or avx512");
}

InstructionSet instruction_set() {
  static const InstructionSet chosen = choose_instruction_set(std::getenv("SHIELDFL_SIMD"));
  return chosen;
}

}  // namespace shieldfl
