#include "tests/constant_time/disassembly.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

namespace shieldfl::tests {
namespace {

std::string output_of(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string output;
  std::array<char, 1 << 16> buffer;
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), got);
  }
  if (::pclose(pipe) != 0 || output.empty()) throw std::runtime_error("this failed: " + command);
  return output;
}

std::string_view mnemonic_of(std::string_view text) {
  for (;;) {
    const std::string_view word = text.substr(0, text.find(' '));
    const bool prefix = word == "rep" || word == "repz" || word == "repnz" || word == "lock" ||
                        word == "notrack" || word == "bnd" || word == "data16" || word == "cs";
    if (!prefix || word.size() == text.size()) return word;
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ', word.size())));
  }
}

// The registers in "(%base,%index,scale)", of which either may be missing.
std::vector<std::string> registers_in(std::string_view operand) {
  std::vector<std::string> registers;
  for (std::size_t at = operand.find('%'); at != std::string_view::npos; at = operand.find('%', at + 1)) {
    registers.emplace_back(operand.substr(at + 1, operand.find_first_of(",)", at) - at - 1));
  }
  return registers;
}

// "div", "idiv" with the suffix of a width; not a vector's "vdivpd" nor "divsd".
bool divides_integers(std::string_view mnemonic) {
  const bool divides = mnemonic.starts_with("div") || mnemonic.starts_with("idiv");
  return divides && mnemonic.find_first_of("sp", 3) == std::string_view::npos;
}

// The program lies where its file says.
Division division_at(std::uint64_t address) {
  constexpr std::size_t kLongestInstruction = 15;
  const auto division =
      Division::decode({reinterpret_cast<const std::uint8_t*>(address), kLongestInstruction});
  if (!division) throw std::runtime_error("a division's operand is of a form that is not known");
  return *division;
}

Instruction parse(std::string_view text) {
  Instruction instruction;
  instruction.text = text;
  const std::string_view mnemonic = mnemonic_of(text);
  instruction.divides = divides_integers(mnemonic);
  if (mnemonic.starts_with("lea") || mnemonic.starts_with("nop")) return instruction;
  // Names of functions have parentheses too, but no register or comma comes first in them.
  for (std::size_t at = text.find('('); at != std::string_view::npos; at = text.find('(', at + 1)) {
    if (at + 1 == text.size() || (text[at + 1] != '%' && text[at + 1] != ',')) continue;
    for (std::string& name : registers_in(text.substr(at, text.find(')', at) - at + 1))) {
      instruction.addresses.push_back(std::move(name));
    }
  }
  return instruction;
}

}  // namespace

Disassembly::Disassembly() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  listing_ = output_of("objdump --disassemble --demangle --no-show-raw-insn '" + program + "'");
  for (std::size_t line = 0; line < listing_.size(); line = listing_.find('\n', line) + 1) {
    // "  401000:\tmov ..."
    const std::string_view text = line_at(line);
    const std::size_t colon = text.find(":\t");
    const std::size_t digits = text.find_first_not_of(' ');
    if (colon == std::string_view::npos || digits == 0) continue;
    std::uint64_t address = 0;
    const auto [end, error] = std::from_chars(text.data() + digits, text.data() + colon, address, 16);
    if (error != std::errc() || end != text.data() + colon) continue;
    offsets_[address] = line + colon + 2;
    const std::string_view instruction = text.substr(colon + 2);
    if (divides_integers(mnemonic_of(instruction))) divisions_.emplace(address, division_at(address));
  }
}

std::string_view Disassembly::line_at(std::size_t offset) const {
  return std::string_view(listing_).substr(offset, listing_.find('\n', offset) - offset);
}

const Instruction& Disassembly::at(std::uint64_t address) const {
  const auto known = parsed_.find(address);
  if (known != parsed_.end()) return known->second;
  const auto offset = offsets_.find(address);
  if (offset == offsets_.end()) throw std::runtime_error("an instruction is not in the disassembly");
  return parsed_.emplace(address, parse(line_at(offset->second))).first->second;
}

// A function begins with "0000000000401000 <name>:".
std::string Disassembly::function_at(std::uint64_t address) const {
  const auto offset = offsets_.find(address);
  if (offset == offsets_.end()) return "code outside the program";
  const std::size_t end = listing_.rfind(">:\n", offset->second);
  const std::size_t begin = listing_.find('<', listing_.rfind('\n', end)) + 1;
  return listing_.substr(begin, end - begin);
}

std::vector<std::string> Disassembly::functions_that_gather(std::string_view within,
                                                            std::string_view except) const {
  std::vector<std::string> names;
  for (const auto& [address, offset] : offsets_) {
    const std::string_view mnemonic = mnemonic_of(line_at(offset));
    if (mnemonic.find("gather") == std::string_view::npos &&
        mnemonic.find("scatter") == std::string_view::npos) {
      continue;
    }
    const std::string name = function_at(address);
    if (name.find(within) != std::string::npos && name.find(except) == std::string::npos)
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace shieldfl::tests
