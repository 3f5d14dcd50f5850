// core_tests [PREFIX...]: runs the tests whose names ("mask_votes.votes_are_counted") begin with a prefix, or
// all.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "common/cpu_features.h"
#include "tests/check.h"

using namespace shieldfl;

namespace {

// Whether this names a set, be it one that this machine does not have.
bool is_instruction_set(std::string_view name) {
  for (const InstructionSet set : all_instruction_sets()) {
    if (name == instruction_set_name(set)) return true;
  }
  return false;
}

// What CTest takes for a skipped test.
constexpr int kSkipped = 77;

}  // namespace

int main(int argument_count, char** arguments) {
  const char* requested = std::getenv("SHIELDFL_SIMD");
  try {
    (void)instruction_set();
  } catch (const Error& error) {
    const bool skip = requested != nullptr && is_instruction_set(requested);
    std::printf("%s: %s\n", skip ? "skipped" : "failed", error.what());
    return skip ? kSkipped : 1;
  }
  return tests::run_tests({arguments + 1, arguments + argument_count});
}
