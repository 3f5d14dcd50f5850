// Runs the operations on secrets under valgrind, which takes memory that is marked as secret for
// uninitialised and reports every branch and every address that depends on it. With --leaks the operations
// that leak, each of which has to be reported. Exit status 0 means as it should be.
#include <valgrind/memcheck.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "common/cpu_features.h"
#include "tests/constant_time/operations.h"

using namespace shieldfl;
using namespace shieldfl::tests;

namespace {

// Whether the operation ended, and valgrind reported something if and only if the operation leaks.
bool as_expected(const SecretOperation& operation, bool leaks) {
  const auto before = VALGRIND_COUNT_ERRORS;
  try {
    operation.prepare(0)();
  } catch (const std::exception& error) {
    std::printf("FAIL  %s: %s\n", operation.name.c_str(), error.what());
    return false;
  }
  const auto reports = VALGRIND_COUNT_ERRORS - before;
  const bool right = (reports != 0) == leaks;
  std::printf("%s  %s: %u reports\n", right ? "ok  " : "FAIL", operation.name.c_str(), reports);
  std::fflush(stdout);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (RUNNING_ON_VALGRIND == 0) {
    std::fprintf(stderr, "nothing is checked outside valgrind: run valgrind -q %s\n", argv[0]);
    return 2;
  }
  const bool leaks_wanted = argc > 1 && std::string_view(argv[1]) == "--leaks";
  std::printf("instruction set: %s\n", instruction_set_name(instruction_set()));
  const auto all_as_expected = [&](const std::vector<SecretOperation>& operations) {
    bool right = true;
    for (const SecretOperation& operation : operations) right &= as_expected(operation, leaks_wanted);
    return right;
  };
  if (leaks_wanted) {
    return all_as_expected({leaking_branch(), leaking_sample(), leaking_frame_secret(), leaking_look_up()})
               ? 0
               : 1;
  }
  bool right = all_as_expected(kernel_operations());
  right &= all_as_expected(block_operations());
  right &= all_as_expected(long_operations());
  right &= all_as_expected(valgrind_operations());
  right &= all_as_expected(paillier_operations());
  right &= all_as_expected(wide_paillier_operations());
  right &= all_as_expected(long_paillier_operations());
  right &= all_as_expected(enrolled_operations());
  right &= all_as_expected(long_enrolled_operations());
  right &= all_as_expected(valgrind_enrolled_operations());
  return right ? 0 : 1;
}
