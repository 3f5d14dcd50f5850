// What an operation leaves in memory that it gives back: on the heap and on its stack.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace shieldfl::tests {

struct Remains {
  std::vector<std::uint8_t> heap;   // all that was freed, as it was when it was
  std::vector<std::uint8_t> stack;  // of the thread that ran the operation
};

// Runs the operation on a thread with a stack of its own. What the operation throws is thrown here.
//
// Memory comes zeroed, so that what remains was written by the operation. Stacks of further threads are not
// looked at.
Remains remains_of(const std::function<void()>& operation);

}  // namespace shieldfl::tests
