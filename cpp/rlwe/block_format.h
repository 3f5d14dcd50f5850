// How the polynomials of one ciphertext travel: rows of digits, bits packed without gaps, of the first digit
// of a coefficient perhaps without its lowest bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/bit_packing.h"
#include "rlwe/digits.h"

namespace shieldfl::rlwe {

// Below it, primes that are 1 modulo twice the degree run out.
inline constexpr int kMinPrimeBits = 20;
// Lazy NTT arithmetic in 52-bit lanes wants four times the prime to fit.
inline constexpr int kMaxPrimeBits = 50;
// Fewer than the bits of any prime, so that something of each coefficient travels.
inline constexpr unsigned kMaxDroppedBits = 16;

// What a thread must have to do before it is worth its start, see threads_for(): where the processor has
// AVX-512, encrypting or opening a ciphertext takes some 25 us, adding or checking one some 5 us.
inline constexpr std::size_t kBlocksWorthEncrypting = 16;
inline constexpr std::size_t kBlocksWorthAdding = 32;

struct RowFormat {
  std::uint64_t prime;
  ring::PackedWidth width;
};

class BlockFormat {
 public:
  BlockFormat(std::size_t degree, std::vector<RowFormat> rows);

  [[nodiscard]] std::size_t words() const { return degree_ * rows_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<RowFormat>& rows() const { return rows_; }

  // `digits`: words() of them; `block`: bytes() of them. The rest is as for the rows in ring/bit_packing.h.
  void pack(std::span<const std::uint64_t> digits, std::span<std::uint8_t> block) const;
  void unpack(std::span<const std::uint8_t> block, std::span<std::uint64_t> digits) const;
  // Throws Error(kWireFormat) for a digit of a payload, ciphertext after ciphertext, that is not below its
  // prime.
  void check(std::span<const std::uint8_t> payload, std::size_t threads) const;
  [[nodiscard]] bool accumulate(std::span<const std::uint8_t> block, std::span<std::uint64_t> sums) const;
  void subtract(std::span<const std::uint8_t> block, std::span<std::uint64_t> sums) const;

 private:
  [[nodiscard]] bool in_range(std::span<const std::uint8_t> block) const;
  // Calls visit(row, its packed bytes, its digits) for all rows.
  template <typename Bytes, typename Words, typename Visit>
  void for_each_row(std::span<Bytes> block, std::span<Words> digits, Visit visit) const;

  std::size_t degree_;
  std::vector<RowFormat> rows_;
  std::size_t bytes_ = 0;
};

// Packs the residues of one ciphertext's polynomials, which become digits on the way.
void pack_residues(const DigitBasis& digits, const BlockFormat& format, std::span<std::uint64_t> residues,
                   std::span<std::uint8_t> block);

// The Error(kWireFormat) for a digit that no frame has.
[[noreturn]] void fail_digit(std::size_t block);

}  // namespace shieldfl::rlwe
