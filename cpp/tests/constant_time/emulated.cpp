// Follows the operations on secrets under an emulator whose plugin (qemu_plugin.cpp) tells which path they
// took and which addresses they used: two runs with other secrets have to take the same. For processors that
// neither valgrind nor the trace of steps.h is there for. Operands of divisions are not seen. Whole
// frames are followed with vector kernels alone. Exit status 0 means as it should be.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

#include "common/cpu_features.h"
#include "tests/constant_time/emulated_steps.h"
#include "tests/constant_time/exchange.h"
#include "tests/constant_time/operations.h"

using namespace shieldfl;
using namespace shieldfl::tests;

namespace {

// In a process of its own, so that both variants find memory as it was.
Followed follow(const SecretOperation& operation, int variant) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    exchange_words(variant == 1);
    const auto watched = operation.prepare(variant);
    syscall(kFollow);
    watched();
    syscall(kTell, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  Followed followed{};
  const auto bytes = read(ends[0], &followed, sizeof followed);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) throw std::runtime_error("the operation has not ended");
  if (bytes != sizeof followed)
    throw std::runtime_error("nobody follows: run this under qemu with the plugin");
  return followed;
}

// Whether paths or addresses differ if and only if the operation leaks.
bool as_expected(const std::vector<SecretOperation>& operations, bool leaks) {
  bool all_right = true;
  for (const SecretOperation& operation : operations) {
    const Followed first = follow(operation, 0);
    const bool differ = first != follow(operation, 1);
    std::printf("%s  %s: %s in %llu steps\n", differ == leaks ? "ok  " : "FAIL", operation.name.c_str(),
                differ ? "a difference" : "no difference", static_cast<unsigned long long>(first.steps));
    std::fflush(stdout);
    all_right &= differ == leaks;
  }
  return all_right;
}

}  // namespace

int main() {
  std::printf("instruction set: %s\n", instruction_set_name(instruction_set()));
  std::fflush(stdout);
  try {
    bool right =
        as_expected({leaking_branch(), leaking_sample(), leaking_frame_secret(), leaking_look_up()}, true);
    right &= as_expected(kernel_operations(), false);
    right &= as_expected(block_operations(), false);
    right &= as_expected(enrolled_operations(), false);
    right &= as_expected(paillier_operations(), false);
    // The scalar checksum looks up the bytes of frames, which are public, and which secrets make others of.
    if (instruction_set() != InstructionSet::kScalar) {
      right &= as_expected(long_operations(), false);
      right &= as_expected(long_enrolled_operations(), false);
    }
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("FAIL  %s\n", error.what());
    return 1;
  }
}
