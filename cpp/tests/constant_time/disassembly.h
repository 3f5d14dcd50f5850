// The running program's own instructions, by address, as objdump prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/constant_time/division.h"

namespace shieldfl::tests {

struct Instruction {
  std::string text;  // in AT&T syntax
  std::vector<std::string>
      addresses;         // general-purpose registers that a memory access takes its address from
  bool divides = false;  // integers, in a time that depends on them
};

class Disassembly {
 public:
  // Throws std::runtime_error where objdump (package binutils) fails, and where an operand of a division is
  // of a form that is not known.
  Disassembly();

  // Precondition: an instruction of this program, which is linked statically.
  [[nodiscard]] const Instruction& at(std::uint64_t address) const;
  // The function that an address lies in.
  [[nodiscard]] std::string function_at(std::uint64_t address) const;
  // All divisions of integers.
  [[nodiscard]] const Divisions& divisions() const { return divisions_; }
  // Names of the functions of namespace `within`, but for those of namespace `except`, that load or store
  // many elements at addresses from a vector.
  [[nodiscard]] std::vector<std::string> functions_that_gather(std::string_view within,
                                                               std::string_view except) const;

 private:
  [[nodiscard]] std::string_view line_at(std::size_t offset) const;

  std::string listing_;
  std::unordered_map<std::uint64_t, std::size_t> offsets_;  // of an instruction's text in the listing
  mutable std::unordered_map<std::uint64_t, Instruction> parsed_;
  Divisions divisions_;
};

}  // namespace shieldfl::tests
