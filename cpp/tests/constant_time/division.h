// What an integer division divides by, from its machine code and the registers before it.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

namespace shieldfl::tests {

// The 64-bit registers of a process, in the order of the kernel's signal frames: REG_R8 is the first, REG_RIP
// the last.
using Registers = std::array<std::uint64_t, REG_RIP + 1>;

class Division {
 public:
  // `code`: of an instruction, and what lies behind it. Nothing if it is none of div and idiv, or one whose
  // operand this cannot find: in a segment of its own, or at an address of 32 bits.
  static std::optional<Division> decode(std::span<const std::uint8_t> code);

  // Of its width, without a sign. Reads this process's memory.
  // Precondition: `registers` are those with which this process is about to divide.
  [[nodiscard]] std::uint64_t divisor(const Registers& registers) const;

 private:
  static constexpr int kNone = -1;

  unsigned width_in_bits_ = 0;
  // The divisor's register, with how far up in it; or kNone, and those of an address.
  int register_ = kNone;
  unsigned shift_ = 0;
  int base_ = kNone;
  int index_ = kNone;
  unsigned scale_shift_ = 0;
  std::int64_t displacement_ = 0;
};

// By address.
using Divisions = std::unordered_map<std::uint64_t, Division>;

}  // namespace shieldfl::tests
