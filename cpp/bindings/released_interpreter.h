// Lets other Python threads run while the core works.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

namespace shieldfl::bindings {

// Like pybind11's gil_scoped_release. When the interpreter ends meanwhile, which daemon threads live to see,
// CPython before 3.14 ends a thread that asks for its lock back by unwinding its stack. That may neither
// leave a destructor nor run those of Python objects without the lock: so the thread stops here, as it does
// in CPython 3.14, and goes when the process does.
class ReleasedInterpreter {
 public:
  ReleasedInterpreter() : state_(PyEval_SaveThread()) {}
  ReleasedInterpreter(const ReleasedInterpreter&) = delete;
  ReleasedInterpreter& operator=(const ReleasedInterpreter&) = delete;
  ~ReleasedInterpreter() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) ::pause();
    }
  }

 private:
  PyThreadState* state_;
};

}  // namespace shieldfl::bindings
