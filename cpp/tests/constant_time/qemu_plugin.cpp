// A plugin for qemu's emulation of a program on another processor: between two marks it follows which
// instructions ran and which addresses they read and wrote, and tells the program a digest of both. Compiled
// for the machine that emulates.
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "tests/constant_time/emulated_steps.h"

// What is used of qemu-plugin.h, version 1, which not every distribution ships beside its qemu.
extern "C" {
using PluginId = std::uint64_t;
struct qemu_plugin_tb;    // instructions that run one after the other
struct qemu_plugin_insn;  // one of them
std::size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb*);
std::uint64_t qemu_plugin_tb_vaddr(const qemu_plugin_tb*);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb*, std::size_t);
void qemu_plugin_register_vcpu_tb_trans_cb(PluginId, void (*)(PluginId, qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_cb(qemu_plugin_tb*, void (*)(unsigned, void*), int, void*);
void qemu_plugin_register_vcpu_tb_exec_inline(qemu_plugin_tb*, int, void*, std::uint64_t);
void qemu_plugin_register_vcpu_mem_cb(qemu_plugin_insn*,
                                      void (*)(unsigned, std::uint32_t, std::uint64_t, void*), int, int,
                                      void*);
void qemu_plugin_register_vcpu_syscall_cb(PluginId,
                                          void (*)(PluginId, unsigned, std::int64_t, std::uint64_t,
                                                   std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                                                   std::uint64_t, std::uint64_t, std::uint64_t));

#define SHIELDFL_PLUGIN __attribute__((visibility("default")))
extern SHIELDFL_PLUGIN int qemu_plugin_version;
SHIELDFL_PLUGIN int qemu_plugin_install(PluginId id, const void* host, int argc, char** argv);
int qemu_plugin_version = 1;
}

namespace {

using shieldfl::tests::Followed;

constexpr int kNoRegisters = 0;
constexpr int kReadsAndWrites = 3;
constexpr int kAdd = 0;

bool following = false;
std::uint64_t steps = 0;
std::uint64_t steps_before = 0;
std::uint64_t digest = 0;

void add_to_digest(std::uint64_t word) {
  digest = (digest ^ word) * 0x9e3779b97f4a7c15;
  digest ^= digest >> 29;
}

void on_instructions(unsigned /*processor*/, void* address) {
  if (following) add_to_digest(reinterpret_cast<std::uint64_t>(address));
}

void on_memory(unsigned /*processor*/, std::uint32_t /*what*/, std::uint64_t address, void* /*data*/) {
  if (following) add_to_digest(address);
}

void on_translation(PluginId /*id*/, qemu_plugin_tb* block) {
  const std::size_t count = qemu_plugin_tb_n_insns(block);
  auto* const address = reinterpret_cast<void*>(qemu_plugin_tb_vaddr(block));
  qemu_plugin_register_vcpu_tb_exec_inline(block, kAdd, &steps, count);
  qemu_plugin_register_vcpu_tb_exec_cb(block, on_instructions, kNoRegisters, address);
  for (std::size_t i = 0; i < count; ++i) {
    qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), on_memory, kNoRegisters,
                                     kReadsAndWrites, nullptr);
  }
}

// The emulated program's descriptors are this process's.
void on_system_call(PluginId /*id*/, unsigned /*processor*/, std::int64_t number, std::uint64_t descriptor,
                    std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                    std::uint64_t) {
  if (number == shieldfl::tests::kFollow) {
    following = true;
    steps_before = steps;
    digest = 0;
  } else if (number == shieldfl::tests::kTell) {
    following = false;
    const Followed followed{steps - steps_before, digest};
    // Whoever reads takes what is short for a failure.
    [[maybe_unused]] const auto written = write(static_cast<int>(descriptor), &followed, sizeof followed);
  }
}

}  // namespace

int qemu_plugin_install(PluginId id, const void* /*host*/, int /*argc*/, char** /*argv*/) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_vcpu_syscall_cb(id, on_system_call);
  return 0;
}
