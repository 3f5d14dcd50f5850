// Sums of packed ciphertexts as they arrive: each is checked in the one pass in which it is added, and taken
// out again where it turns out damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rlwe/block_format.h"
#include "rlwe/digits.h"

namespace shieldfl::rlwe {

class DigitSums {
 public:
  // `polynomials`: that a ciphertext has. `threads`: as for threads_for().
  DigitSums(DigitBasis basis, std::size_t polynomials, std::size_t threads);

  // Makes room for the sums of so many ciphertexts, unless there is; what is in them stays. All memory is
  // taken here.
  void prepare(std::size_t blocks);

  // Adds prepare()d ciphertexts in this format. Where `expected_checksum` is given, it is that of `head` and
  // then `payload`. Throws Error(kWireFormat) for a digit that is not below its prime, or another checksum,
  // and has changed nothing then.
  // The bytes may not change meanwhile.
  void add(const BlockFormat& format, std::span<const std::uint8_t> payload,
           std::span<const std::uint8_t> head, std::optional<std::uint32_t> expected_checksum);

  // Writes the sums, reduced, and returns the checksum of what came before, `checksum`, and them.
  std::uint32_t write(const BlockFormat& format, std::span<std::uint8_t> payload,
                      std::uint32_t checksum) const;

 private:
  [[nodiscard]] std::size_t words() const { return basis_.words() * polynomials_; }  // of one ciphertext
  [[nodiscard]] std::size_t blocks() const { return sums_.size() / words(); }
  [[nodiscard]] std::span<std::uint64_t> sums_of(std::size_t block);
  [[nodiscard]] std::size_t threads_for_blocks() const;
  void reduce_ciphertext(std::span<std::uint64_t> sums) const;
  void reduce();

  DigitBasis basis_;
  std::size_t polynomials_;
  std::size_t threads_;  // as requested
  // Ciphertext after ciphertext, rows of digits as they travel; each a sum of `lazy_additions_` digits.
  std::vector<std::uint64_t> sums_;
  std::size_t lazy_additions_ = 0;
};

}  // namespace shieldfl::rlwe
