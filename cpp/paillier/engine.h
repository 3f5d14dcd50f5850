// Arithmetic modulo the square of an odd number n, on many numbers at once: one interface, two engines that
// agree word for word.
//
// Numbers are little-endian 64-bit words, and words() of them hold n. A residue modulo n^2 is a pair: low and
// then high, both below n, for low + high * n. So a product takes three products and two reductions of half
// the length (the high halves' product vanishes modulo n^2), and n itself is the only modulus that is ever
// reduced by.
//
// Everything is constant-time in n, in bases, in plaintexts and in exponents, but for what is named
// `_vartime` or said to be public. All functions work on the calling thread, and any number of threads may
// call at once. Outputs may be the inputs but may not overlap them otherwise. Temporaries are wiped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "common/cpu_features.h"

namespace shieldfl::paillier {

enum class EngineKind : std::uint8_t {
  kGmp,   // GMP's functions for secrets; any processor
  kIfma,  // eight numbers at once in AVX-512 IFMA, 52 bits a limb
};

const char* engine_name(EngineKind kind);
// "gmp" or "ifma"; Error(kParameter) for anything else.
EngineKind engine_named(std::string_view name);
// The fastest one that may use no more than this instruction set.
EngineKind engine_for(InstructionSet set);

// base^0, base^1, ... of one base, so that a power takes only products. A power of two of rows, one for each
// digit of the exponent.
class FixedBase {
 public:
  virtual ~FixedBase() = default;
  [[nodiscard]] std::size_t exponent_bits() const { return exponent_bits_; }
  // 64-bit words of one exponent.
  [[nodiscard]] std::size_t exponent_words() const { return (exponent_bits_ + 63) / 64; }
  [[nodiscard]] virtual std::size_t table_bytes() const = 0;

  // pairs[i] = base^exponents[i]; exponent_words() words each, of which the lowest exponent_bits() count.
  // Every entry of a row is read for each digit.
  virtual void power(std::span<const std::uint64_t> exponents, std::span<std::uint64_t> pairs) const = 0;
  // The same, possibly by addresses that depend on the exponents: who shares the processor's caches may then
  // learn them. Where look-ups that leak nothing cost nothing, as in registers, these are the same.
  virtual void power_vartime(std::span<const std::uint64_t> exponents,
                             std::span<std::uint64_t> pairs) const = 0;

 protected:
  explicit FixedBase(std::size_t exponent_bits) : exponent_bits_(exponent_bits) {}

 private:
  std::size_t exponent_bits_;
};

class Engine {
 public:
  // `modulus`: odd, above 2^64, its top word not zero.
  static std::shared_ptr<const Engine> make(EngineKind kind, std::span<const std::uint64_t> modulus);
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] virtual EngineKind kind() const = 0;
  [[nodiscard]] std::size_t words() const { return words_; }
  [[nodiscard]] std::size_t pair_words() const { return 2 * words_; }
  // Calls with a multiple of this many numbers are the fastest.
  [[nodiscard]] virtual std::size_t batch_size() const = 0;

  // Residues modulo n^2, pair_words() words each, as pairs, and back.
  virtual void to_pairs(std::span<const std::uint64_t> residues, std::span<std::uint64_t> pairs) const = 0;
  virtual void to_residues(std::span<const std::uint64_t> pairs, std::span<std::uint64_t> residues) const = 0;

  // out[i] = left[i] * right[i].
  virtual void multiply(std::span<const std::uint64_t> left, std::span<const std::uint64_t> right,
                        std::span<std::uint64_t> out) const = 0;
  // pairs[i] *= residues[i], which are below n^2. Fused, because a sum of ciphertexts does little else.
  virtual void multiply_residues(std::span<const std::uint64_t> residues,
                                 std::span<std::uint64_t> pairs) const = 0;
  // pairs[i] *= 1 + plaintexts[i] * n: words() words each, below n.
  virtual void add_plaintexts(std::span<const std::uint64_t> plaintexts,
                              std::span<std::uint64_t> pairs) const = 0;

  // out[i] = bases[i]^exponent. The exponent is public, its top word not zero.
  virtual void power_public(std::span<const std::uint64_t> bases, std::span<const std::uint64_t> exponent,
                            std::span<std::uint64_t> out) const = 0;
  // The same for a secret exponent: its number of words is public, its bits are not.
  virtual void power_secret(std::span<const std::uint64_t> bases, std::span<const std::uint64_t> exponent,
                            std::span<std::uint64_t> out) const = 0;
  // The table of a base (one pair, without a factor in common with n). Requires exponent_bits >= 1.
  [[nodiscard]] virtual std::unique_ptr<const FixedBase> fixed_base(std::span<const std::uint64_t> base,
                                                                    std::size_t exponent_bits) const = 0;

 protected:
  explicit Engine(std::size_t words) : words_(words) {}

 private:
  std::size_t words_;
};

}  // namespace shieldfl::paillier
