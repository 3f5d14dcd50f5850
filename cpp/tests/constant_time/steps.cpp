#include "tests/constant_time/steps.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <set>
#include <string_view>

#include "tests/constant_time/exchange.h"

namespace shieldfl::tests {
namespace {

constexpr int kThrew = 78;
constexpr unsigned long long kTrapFlag = 0x100;
constexpr std::size_t kStepsOfPart = 4096;

// The 64-bit registers of a process, in the order of the kernel's signal frames: REG_R8 is the first, REG_RIP
// the last.
using Registers = std::array<std::uint64_t, REG_RIP + 1>;

// The place of the 64-bit register that a register of any width is a part of; -1 for one that is not
// general-purpose.
int find_register(std::string_view name) {
  struct Names {
    std::string_view of_64_bits;
    std::string_view of_32_bits;
    int place;
  };
  static constexpr Names kNames[] = {
      {"rax", "eax", REG_RAX},  {"rbx", "ebx", REG_RBX},  {"rcx", "ecx", REG_RCX},  {"rdx", "edx", REG_RDX},
      {"rsi", "esi", REG_RSI},  {"rdi", "edi", REG_RDI},  {"rbp", "ebp", REG_RBP},  {"rsp", "esp", REG_RSP},
      {"r8", "r8d", REG_R8},    {"r9", "r9d", REG_R9},    {"r10", "r10d", REG_R10}, {"r11", "r11d", REG_R11},
      {"r12", "r12d", REG_R12}, {"r13", "r13d", REG_R13}, {"r14", "r14d", REG_R14}, {"r15", "r15d", REG_R15}};
  for (const Names& names : kNames) {
    if (name == names.of_64_bits || name == names.of_32_bits) return names.place;
  }
  return -1;
}

// Steps that follow each other, as the process that takes them notes them.
struct Part {
  std::size_t count;
  bool is_last;
  std::array<Registers, kStepsOfPart> steps;
};

// Memory of this process and of those that it starts.
class SharedParts {
 public:
  SharedParts()
      : memory_(
            ::mmap(nullptr, 2 * sizeof(Part), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::runtime_error("no memory for the steps of two processes");
  }
  SharedParts(const SharedParts&) = delete;
  SharedParts& operator=(const SharedParts&) = delete;
  ~SharedParts() { ::munmap(memory_, 2 * sizeof(Part)); }

  Part& of(int variant) { return static_cast<Part*>(memory_)[variant]; }

 private:
  void* memory_;
};

// In a process that runs a variant: where its steps are noted, and the socket to whoever compares them.
Part* noted = nullptr;
int comparer = -1;

void hand_over(bool is_last) {
  char word = 0;
  noted->is_last = is_last;
  if (::send(comparer, &word, 1, MSG_NOSIGNAL) != 1) ::_exit(1);
  if (is_last) return;
  if (::recv(comparer, &word, 1, 0) != 1) ::_exit(1);
  noted->count = 0;
}

// What the processor raises after each instruction while its trap flag is set.
void note_step(int, siginfo_t*, void* context) {
  const int before = errno;
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  std::copy(registers, registers + REG_RIP + 1, noted->steps[noted->count].begin());
  if (++noted->count == kStepsOfPart) hand_over(false);
  errno = before;
}

// On a stack of its own: what is below the stack pointer belongs to the code that is followed.
void note_steps_from_traps() {
  static std::array<char, 1 << 16> signal_stack;
  const stack_t stack{.ss_sp = signal_stack.data(), .ss_flags = 0, .ss_size = signal_stack.size()};
  struct sigaction action = {};
  action.sa_sigaction = note_step;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  if (::sigaltstack(&stack, nullptr) != 0 || ::sigaction(SIGTRAP, &action, nullptr) != 0) ::_exit(1);
}

// This and the next function are no parts of their callers, of which the compiler makes copies that differ in
// where things lie on the stack.
[[gnu::noinline]] void run_step_by_step(const std::function<void()>& run) {
  __writeeflags(__readeflags() | kTrapFlag);
  run();
  __writeeflags(__readeflags() & ~kTrapFlag);
}

[[noreturn, gnu::noinline]] void work(const SecretOperation& operation, int variant) {
  note_steps_from_traps();
  try {
    const auto run = operation.prepare(variant);
    exchange_words(variant != 0);
    run_step_by_step(run);
  } catch (const std::exception&) {
    ::_exit(kThrew);
  }
  hand_over(true);
  ::_exit(0);
}

// A process that runs one variant, and ends with this object.
class Run {
 public:
  Run(const SecretOperation& operation, int variant, SharedParts& parts) : part_(parts.of(variant)) {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) throw TracingRefused("no sockets");
    process_ = ::fork();
    if (process_ == 0) {
      noted = &part_;
      comparer = sockets[1];
      ::close(sockets[0]);
      work(operation, variant);
    }
    ::close(sockets[1]);
    socket_ = sockets[0];
    if (process_ < 0) {
      ::close(socket_);
      throw TracingRefused("no second process can be started");
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    ::close(socket_);
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  // The next steps; no others after the last.
  const Part& next() {
    char word = 0;
    if (waits_ && ::send(socket_, &word, 1, MSG_NOSIGNAL) != 1) fail();
    if (::recv(socket_, &word, 1, 0) != 1) fail();
    waits_ = true;
    return part_;
  }

 private:
  [[noreturn]] void fail() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = 0;
    const bool threw = WIFEXITED(status) && WEXITSTATUS(status) == kThrew;
    throw std::runtime_error(threw ? "the operation threw an exception"
                                   : "the operation did not end as it should");
  }

  Part& part_;
  pid_t process_ = 0;
  int socket_ = -1;
  bool waits_ = false;  // it waits to be asked for its next steps
};

// What registers that differ mean to an instruction; empty if nothing.
std::string difference_at(const Instruction& instruction, const Registers& first, const Registers& second) {
  if (first[REG_RSP] != second[REG_RSP]) return "the stack pointer";
  for (const std::string& name : instruction.addresses) {
    const int place = find_register(name);
    if (place >= 0 && first[static_cast<std::size_t>(place)] != second[static_cast<std::size_t>(place)])
      return "an address";
  }
  if (instruction.divides && (first[REG_RAX] != second[REG_RAX] || first[REG_RDX] != second[REG_RDX]))
    return "a dividend";
  return {};
}

}  // namespace

Comparison compare_runs(const SecretOperation& operation, const Disassembly& disassembly) {
  Comparison comparison;
  // Before either process is started, so that both have the same addresses.
  SharedParts parts;
  Run first(operation, 0, parts);
  Run second(operation, 1, parts);
  std::set<std::uint64_t> found;
  std::uint64_t last = 0;
  const auto report = [&](const std::string& what, std::uint64_t address) {
    comparison.differences.push_back(what + " in " + disassembly.function_at(address) + ": " +
                                     disassembly.at(address).text);
  };
  for (;;) {
    const Part& of_first = first.next();
    const Part& of_second = second.next();
    for (std::size_t i = 0; i < std::min(of_first.count, of_second.count); ++i, ++comparison.steps) {
      const Registers& a = of_first.steps[i];
      const Registers& b = of_second.steps[i];
      if (a[REG_RIP] != b[REG_RIP]) {
        report("the path", last);
        return comparison;
      }
      last = a[REG_RIP];
      if (a == b) continue;  // most steps
      const std::string what = difference_at(disassembly.at(last), a, b);
      if (!what.empty() && found.insert(last).second) report(what, last);
    }
    if (of_first.count != of_second.count || of_first.is_last != of_second.is_last) {
      report("the path", last);
      return comparison;
    }
    if (!of_first.is_last) continue;
    if (comparison.steps == 0) throw TracingRefused("no single steps");
    return comparison;
  }
}

}  // namespace shieldfl::tests
