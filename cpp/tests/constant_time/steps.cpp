#include "tests/constant_time/steps.h"

#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <string_view>

#include "tests/constant_time/exchange.h"

namespace shieldfl::tests {
namespace {

constexpr int kRefused = 77;
constexpr int kThrew = 78;

using Registers = user_regs_struct;

// The 64-bit register that a register of any width is a part of; null for one that is not general-purpose.
const unsigned long long* find_register(const Registers& registers, std::string_view name) {
  struct Names {
    std::string_view of_64_bits;
    std::string_view of_32_bits;
    unsigned long long Registers::* value;
  };
  static constexpr Names kNames[] = {
      {"rax", "eax", &Registers::rax},  {"rbx", "ebx", &Registers::rbx},  {"rcx", "ecx", &Registers::rcx},
      {"rdx", "edx", &Registers::rdx},  {"rsi", "esi", &Registers::rsi},  {"rdi", "edi", &Registers::rdi},
      {"rbp", "ebp", &Registers::rbp},  {"rsp", "esp", &Registers::rsp},  {"r8", "r8d", &Registers::r8},
      {"r9", "r9d", &Registers::r9},    {"r10", "r10d", &Registers::r10}, {"r11", "r11d", &Registers::r11},
      {"r12", "r12d", &Registers::r12}, {"r13", "r13d", &Registers::r13}, {"r14", "r14d", &Registers::r14},
      {"r15", "r15d", &Registers::r15}};
  for (const Names& names : kNames) {
    if (name == names.of_64_bits || name == names.of_32_bits) return &(registers.*names.value);
  }
  return nullptr;
}

// A stopped process that is about to run one variant, and ends with this object.
class Run {
 public:
  Run(const SecretOperation& operation, int variant) : process_(::fork()) {
    if (process_ < 0) throw TracingRefused("no second process can be started");
    if (process_ == 0) work(operation, variant);
    wait();
    if (WIFEXITED(status_) && WEXITSTATUS(status_) == kRefused) throw TracingRefused("ptrace is refused");
    if (!at_mark()) fail();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (WIFEXITED(status_) || WIFSIGNALED(status_)) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  // One instruction. False once the operation is over.
  bool step() {
    if (::ptrace(PTRACE_SINGLESTEP, process_, nullptr, nullptr) != 0) throw TracingRefused("no single steps");
    wait();
    if (at_mark()) return false;
    if (!WIFSTOPPED(status_) || WSTOPSIG(status_) != SIGTRAP) fail();
    if (::ptrace(PTRACE_GETREGS, process_, nullptr, &registers) != 0) throw TracingRefused("no registers");
    return true;
  }

  Registers registers{};

 private:
  // This and the next function are no parts of their callers, of which the compiler makes copies that differ
  // in where things lie on the stack.
  [[gnu::noinline]] static void run_between_marks(const std::function<void()>& run) {
    ::raise(SIGSTOP);
    run();
    ::raise(SIGSTOP);
  }

  [[noreturn, gnu::noinline]] static void work(const SecretOperation& operation, int variant) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kRefused);
    try {
      const auto run = operation.prepare(variant);
      exchange_words(variant != 0);
      run_between_marks(run);
    } catch (const std::exception&) {
      ::_exit(kThrew);
    }
    ::_exit(0);
  }

  void wait() {
    if (::waitpid(process_, &status_, 0) != process_) throw TracingRefused("the traced process is gone");
  }
  [[nodiscard]] bool at_mark() const { return WIFSTOPPED(status_) && WSTOPSIG(status_) == SIGSTOP; }
  [[noreturn]] void fail() const {
    const bool threw = WIFEXITED(status_) && WEXITSTATUS(status_) == kThrew;
    throw std::runtime_error(threw ? "the operation threw an exception"
                                   : "the operation did not end as it should");
  }

  pid_t process_;
  int status_ = 0;
};

// What registers that differ mean to an instruction; empty if nothing.
std::string difference_at(const Instruction& instruction, const Registers& first, const Registers& second) {
  if (first.rsp != second.rsp) return "the stack pointer";
  for (const std::string& name : instruction.addresses) {
    const auto* const value = find_register(first, name);
    if (value != nullptr && *value != *find_register(second, name)) return "an address";
  }
  if (instruction.divides && (first.rax != second.rax || first.rdx != second.rdx)) return "a dividend";
  return {};
}

}  // namespace

Comparison compare_runs(const SecretOperation& operation, const Disassembly& disassembly) {
  Comparison comparison;
  Run first(operation, 0);
  Run second(operation, 1);
  std::set<std::uint64_t> found;
  std::uint64_t last = 0;
  const auto report = [&](const std::string& what, std::uint64_t address) {
    comparison.differences.push_back(what + " in " + disassembly.function_at(address) + ": " +
                                     disassembly.at(address).text);
  };
  for (;; ++comparison.steps) {
    const bool first_goes_on = first.step();
    const bool second_goes_on = second.step();
    if (!first_goes_on && !second_goes_on) return comparison;
    const Registers& a = first.registers;
    const Registers& b = second.registers;
    if (first_goes_on != second_goes_on || a.rip != b.rip) {
      report("the path", last);
      return comparison;
    }
    last = a.rip;
    // Most steps: registers hold the same, up to the instruction pointer (the order is the kernel's).
    if (std::equal(&a.r15, &a.orig_rax, &b.r15) && a.rsp == b.rsp) continue;
    const std::string what = difference_at(disassembly.at(a.rip), a, b);
    if (!what.empty() && found.insert(a.rip).second) report(what, a.rip);
  }
}

}  // namespace shieldfl::tests
