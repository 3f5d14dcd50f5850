// Divisions of a public number by each form of operand that machine code has for it. A compiler chooses among
// them, so these are written out.
#include <cstdint>

#include "tests/constant_time/operations.h"

namespace shieldfl::tests {
namespace {

constexpr std::uint64_t kDividend = 100;  // what any quotient of it has room for

// Bits of a word that are the divisor.
struct Form {
  const char* name;
  unsigned first_bit;
  unsigned bits;
  void (*divide)(const std::uint64_t* word);
};

void by_64_bits(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divq %2" : "+a"(low), "+d"(high) : "r"(*word) : "cc");
}

void by_upper_64_bits(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("movq %2, %%r12\n\tidivq %%r12" : "+a"(low), "+d"(high) : "r"(*word) : "r12", "cc");
}

void by_32_bits(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divl %k2" : "+a"(low), "+d"(high) : "r"(*word) : "cc");
}

void by_16_bits(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divw %w2" : "+a"(low), "+d"(high) : "r"(*word) : "cc");
}

void by_8_bits(const std::uint64_t* word) {
  std::uint64_t low = kDividend;
  asm volatile("divb %%sil" : "+a"(low) : "S"(*word) : "cc");
}

void by_second_8_bits(const std::uint64_t* word) {
  std::uint64_t low = kDividend;
  asm volatile("divb %%ch" : "+a"(low) : "c"(*word) : "cc");
}

void by_64_bits_in_memory(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divq (%2)" : "+a"(low), "+d"(high) : "r"(word) : "cc", "memory");
}

void by_32_bits_before(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divl -8(%2)" : "+a"(low), "+d"(high) : "r"(word + 1) : "cc", "memory");
}

void by_16_bits_far_before(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divw -0x800(%2)" : "+a"(low), "+d"(high) : "r"(word + 0x100) : "cc", "memory");
}

void by_8_bits_in_memory(const std::uint64_t* word) {
  std::uint64_t low = kDividend;
  asm volatile("movq %1, %%r13\n\tdivb (%%r13)" : "+a"(low) : "r"(word) : "r13", "cc", "memory");
}

void by_an_element(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("movq %3, %%r12\n\tdivq -32(%2,%%r12,8)"
               : "+a"(low), "+d"(high)
               : "r"(word + 1), "r"(std::uint64_t{3})
               : "r12", "cc", "memory");
}

void by_an_element_without_base(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divq -16(,%2,2)"
               : "+a"(low), "+d"(high)
               : "r"(reinterpret_cast<std::uint64_t>(word + 1) / 2 + 4)
               : "cc", "memory");
}

void on_the_stack(const std::uint64_t* word) {
  std::uint64_t low = kDividend, high = 0;
  asm volatile("pushq %2\n\tdivl (%%rsp)\n\tpopq %%rcx" : "+a"(low), "+d"(high) : "r"(*word) : "rcx", "cc");
}

std::uint64_t of_program = 1;

void of_the_program(const std::uint64_t* word) {
  of_program = *word;
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divq %c2(%%rip)" : "+a"(low), "+d"(high) : "i"(&of_program) : "cc", "memory");
}

void of_the_program_by_its_address(const std::uint64_t* word) {
  of_program = *word;
  std::uint64_t low = kDividend, high = 0;
  asm volatile("divq %c2" : "+a"(low), "+d"(high) : "i"(&of_program) : "cc", "memory");
}

constexpr Form kForms[] = {
    {"64 bits", 0, 64, by_64_bits},
    {"64 bits of an upper register", 0, 64, by_upper_64_bits},
    {"32 bits", 0, 32, by_32_bits},
    {"16 bits", 0, 16, by_16_bits},
    {"8 bits", 0, 8, by_8_bits},
    {"the second 8 bits", 8, 8, by_second_8_bits},
    {"64 bits in memory", 0, 64, by_64_bits_in_memory},
    {"32 bits before an address", 0, 32, by_32_bits_before},
    {"16 bits far before an address", 0, 16, by_16_bits_far_before},
    {"8 bits in memory", 0, 8, by_8_bits_in_memory},
    {"an element of an array", 0, 64, by_an_element},
    {"an element by its index alone", 0, 64, by_an_element_without_base},
    {"32 bits on the stack", 0, 32, on_the_stack},
    {"the program's memory", 0, 64, of_the_program},
    {"the program's memory by its address", 0, 64, of_the_program_by_its_address},
};

std::vector<SecretOperation> divisions(const char* intent, bool secret_divisor) {
  std::vector<SecretOperation> operations;
  for (const Form& form : kForms) {
    const std::uint64_t bits = (form.bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << form.bits) - 1)
                               << form.first_bit;
    operations.push_back({std::string(intent) + form.name, [=](int variant) {
                            std::mt19937_64 of_variant = secrets_of(variant);
                            std::mt19937_64 of_both = secrets_of(0);
                            const std::uint64_t secret = of_variant() & (secret_divisor ? bits : ~bits);
                            const std::uint64_t known = of_both() & (secret_divisor ? ~bits : bits);
                            // A divisor is positive and not zero.
                            const std::uint64_t word =
                                ((secret | known) & ~(std::uint64_t{1} << (form.first_bit + form.bits - 1))) |
                                (std::uint64_t{1} << form.first_bit);
                            return [divide = form.divide,
                                    words = std::vector<std::uint64_t>{secret, secret, word, secret}] {
                              divide(&words[2]);
                            };
                          }});
  }
  return operations;
}

}  // namespace

std::vector<SecretOperation> leaking_divisors() {
  return divisions("a division by a secret, to be found: ", true);
}

std::vector<SecretOperation> public_divisors() {
  return divisions("a division by a number with secrets around: ", false);
}

}  // namespace shieldfl::tests
