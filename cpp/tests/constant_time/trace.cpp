// Follows the operations on secrets, two runs side by side, and reports where their paths or addresses part.
// Covers the instruction sets that valgrind does not know. With --short: the kernels and the smallest whole
// encryption and opening. Exit status 0 means as it should be, or that the system forbids tracing, which is
// said.
#include <sched.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "common/cpu_features.h"
#include "tests/constant_time/steps.h"

using namespace shieldfl;
using namespace shieldfl::tests;

namespace {

// The traced process and this one take turns: on one processor these are shorter.
void stay_on_this_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  (void)sched_setaffinity(0, sizeof one, &one);
}

void print(bool right, const SecretOperation& operation, const Comparison& comparison) {
  std::printf("%s  %s: %zu differences in %llu steps\n", right ? "ok  " : "FAIL", operation.name.c_str(),
              comparison.differences.size(), static_cast<unsigned long long>(comparison.steps));
  if (!right) {
    for (const std::string& difference : comparison.differences)
      std::printf("        %s\n", difference.c_str());
  }
  std::fflush(stdout);
}

bool all_clean(const std::vector<SecretOperation>& operations, const Disassembly& disassembly) {
  bool all_right = true;
  for (const SecretOperation& operation : operations) {
    const Comparison comparison = compare_runs(operation, disassembly);
    const bool right = comparison.differences.empty();
    print(right, operation, comparison);
    all_right &= right;
  }
  return all_right;
}

// Whether the one difference is `what`, in the code that leaks.
bool is_found(const SecretOperation& leak, const std::string& what, const Disassembly& disassembly) {
  const std::string where = " in shieldfl::tests::(anonymous namespace)::";
  const Comparison comparison = compare_runs(leak, disassembly);
  const bool right =
      comparison.differences.size() == 1 && comparison.differences.front().starts_with(what + where);
  print(right, leak, comparison);
  return right;
}

bool check(bool in_short) {
  const Disassembly disassembly;
  bool right = true;
  // Addresses in a vector are not followed: where they occur they have to be public, as a client's mask is to
  // the client itself, or the name has to say so.
  for (const std::string& name : disassembly.functions_that_gather("shieldfl::", "shieldfl::mask::")) {
    if (name.find("_vartime") != std::string::npos) continue;
    std::printf("FAIL  addresses from a vector: %s\n", name.c_str());
    right = false;
  }
  right &= is_found(leaking_branch(), "the path", disassembly);
  right &= is_found(leaking_sample(), "the path", disassembly);
  right &= is_found(leaking_frame_secret(), "the path", disassembly);
  right &= is_found(leaking_look_up(), "an address", disassembly);
  right &= is_found(leaking_division(), "a dividend", disassembly);
  for (const SecretOperation& leak : leaking_divisors()) right &= is_found(leak, "a divisor", disassembly);
  right &= all_clean(public_divisors(), disassembly);
  right &= all_clean(kernel_operations(), disassembly);
  right &= all_clean(block_operations(), disassembly);
  right &= all_clean(paillier_operations(), disassembly);
  right &= all_clean(enrolled_operations(), disassembly);
  if (in_short) return right;
  right &= all_clean(wide_paillier_operations(), disassembly);
  right &= all_clean(long_operations(), disassembly);
  right &= all_clean(long_enrolled_operations(), disassembly);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("instruction set: %s\n", instruction_set_name(instruction_set()));
  stay_on_this_processor();
  try {
    return check(argc > 1 && std::string_view(argv[1]) == "--short") ? 0 : 1;
  } catch (const TracingRefused& refused) {
    std::printf("skipped: %s\n", refused.what());
    return 77;  // what CTest takes for a skipped test
  } catch (const std::exception& error) {
    std::printf("FAIL  %s\n", error.what());
    return 1;
  }
}
