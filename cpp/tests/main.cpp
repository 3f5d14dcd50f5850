#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "common/cpu_features.h"
#include "tests/check.h"

using namespace shieldfl;

namespace {

// Whether this names a set, be it one that this machine does not have.
bool is_instruction_set(std::string_view name) {
  for (const InstructionSet set : {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (name == instruction_set_name(set)) return true;
  }
  return false;
}

// What CTest takes for a skipped test.
constexpr int kSkipped = 77;

}  // namespace

int main() {
  const char* requested = std::getenv("SHIELDFL_SIMD");
  try {
    (void)instruction_set();
  } catch (const Error& error) {
    const bool skip = requested != nullptr && is_instruction_set(requested);
    std::printf("%s: %s\n", skip ? "skipped" : "failed", error.what());
    return skip ? kSkipped : 1;
  }
  return tests::run_all();
}
