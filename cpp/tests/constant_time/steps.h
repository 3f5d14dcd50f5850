// Two runs of an operation, with other secrets, instruction by instruction.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/constant_time/disassembly.h"
#include "tests/constant_time/operations.h"

namespace shieldfl::tests {

// The system does not let a process be followed.
struct TracingRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Comparison {
  std::uint64_t steps = 0;
  // What differs and where, each place once: the next instruction (with which the comparison ends), the
  // address of a memory access, the operands of an integer division.
  std::vector<std::string> differences;
};

// Runs variants 0 and 1 in two processes that have the same memory but for what prepare() puts there. Throws
// TracingRefused, and std::runtime_error when a run fails.
Comparison compare_runs(const SecretOperation& operation, const Disassembly& disassembly);

}  // namespace shieldfl::tests
