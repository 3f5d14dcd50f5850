#include "tests/constant_time/division.h"

#include <cstddef>
#include <cstring>

namespace shieldfl::tests {
namespace {

// By their numbers in machine code.
constexpr int kRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
constexpr unsigned kStackPointer = 4;  // in an address: a further byte follows
constexpr unsigned kBasePointer = 5;   // in an address without displacement: it has no base

std::uint64_t at(const Registers& registers, int place) {
  return registers[static_cast<std::size_t>(place)];
}

// Little-endian bytes with a sign.
template <typename Integer>
std::optional<std::int64_t> read(std::span<const std::uint8_t> code, std::size_t& place) {
  if (code.size() - place < sizeof(Integer)) return {};
  Integer value;
  std::memcpy(&value, &code[place], sizeof value);
  place += sizeof value;
  return value;
}

}  // namespace

std::optional<Division> Division::decode(std::span<const std::uint8_t> code) {
  std::size_t place = 0;
  const auto next = [&]() -> unsigned { return place < code.size() ? code[place++] : 0; };

  // [66] [REX] F6 or F7, ModRM, [SIB], [displacement].
  unsigned byte = next();
  const bool short_words = byte == 0x66;
  if (short_words) byte = next();
  const bool has_rex = (byte & 0xF0) == 0x40;
  const unsigned rex = has_rex ? byte & 0xF : 0;
  if (has_rex) byte = next();
  if (byte != 0xF6 && byte != 0xF7) return {};
  const unsigned mod_rm = next();
  const unsigned mode = mod_rm >> 6;
  const unsigned operation = (mod_rm >> 3) & 7;
  const unsigned operand = mod_rm & 7;
  if (operation != 6 && operation != 7) return {};

  Division division;
  division.width_in_bits_ = byte == 0xF6 ? 8 : (rex & 8) != 0 ? 64 : short_words ? 16 : 32;
  const unsigned upper_base = (rex & 1) << 3;
  if (mode == 3) {
    // Without a prefix, bytes 4 to 7 are the second ones of the first four registers.
    const bool second_byte = byte == 0xF6 && !has_rex && operand >= 4;
    division.register_ = kRegisters[second_byte ? operand - 4 : operand + upper_base];
    division.shift_ = second_byte ? 8 : 0;
    return division;
  }

  bool from_next_instruction = false;
  bool has_base = true;
  unsigned base = operand;
  if (operand == kStackPointer) {
    const unsigned sib = next();
    base = sib & 7;
    const unsigned index = ((sib >> 3) & 7) + ((rex & 2) << 2);
    division.scale_shift_ = sib >> 6;
    if (index != kStackPointer) division.index_ = kRegisters[index];
    has_base = mode != 0 || base != kBasePointer;
  } else if (mode == 0 && operand == kBasePointer) {
    from_next_instruction = true;
    has_base = false;
  }
  if (has_base) division.base_ = kRegisters[base + upper_base];
  if (mode != 0 || !has_base) {
    const auto displacement = mode == 1 ? read<std::int8_t>(code, place) : read<std::int32_t>(code, place);
    if (!displacement) return {};
    division.displacement_ = *displacement;
  }
  if (from_next_instruction) {
    division.base_ = REG_RIP;
    division.displacement_ += static_cast<std::int64_t>(place);
  }
  return division;
}

std::uint64_t Division::divisor(const Registers& registers) const {
  std::uint64_t value = 0;
  if (register_ != kNone) {
    value = at(registers, register_) >> shift_;
  } else {
    std::uint64_t address = static_cast<std::uint64_t>(displacement_);
    if (base_ != kNone) address += at(registers, base_);
    if (index_ != kNone) address += at(registers, index_) << scale_shift_;
    // The registers are all that says where it is.
    std::memcpy(&value, reinterpret_cast<const void*>(address), width_in_bits_ / 8);
  }
  return width_in_bits_ == 64 ? value : value & ((std::uint64_t{1} << width_in_bits_) - 1);
}

}  // namespace shieldfl::tests
