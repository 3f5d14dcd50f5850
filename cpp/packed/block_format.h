// How one block of a payload travels: rows of words, each with its lowest bits perhaps left out, packed
// without gaps. What a word is, the scheme knows: a digit of a coefficient, or a value under a pad.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ring/bit_packing.h"

namespace shieldfl::packed {

struct RowFormat {
  std::uint64_t modulus;  // words are below it
  ring::PackedWidth width;
};

class BlockFormat {
 public:
  BlockFormat(std::size_t row_length, std::vector<RowFormat> rows);

  [[nodiscard]] std::size_t words() const { return row_length_ * rows_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<RowFormat>& rows() const { return rows_; }

  // `in`, `words`: words() of them; `block`: bytes() of them. The rest is as for the rows in
  // ring/bit_packing.h.
  void pack(std::span<const std::uint64_t> in, std::span<std::uint8_t> block) const;
  void unpack(std::span<const std::uint8_t> block, std::span<std::uint64_t> words) const;
  // Throws Error(kWireFormat) for a word of a payload, block after block, that is not below its modulus.
  void check(std::span<const std::uint8_t> payload, std::size_t threads) const;
  [[nodiscard]] bool accumulate(std::span<const std::uint8_t> block, std::span<std::uint64_t> sums) const;
  void subtract(std::span<const std::uint8_t> block, std::span<std::uint64_t> sums) const;
  // The threads that are worth their start for adding or checking so many blocks, see threads_for().
  [[nodiscard]] std::size_t threads_for_adding(std::size_t requested, std::size_t blocks) const;

 private:
  [[nodiscard]] bool in_range(std::span<const std::uint8_t> block) const;
  // Calls visit(row, its packed bytes, its words) for all rows.
  template <typename Bytes, typename Words, typename Visit>
  void for_each_row(std::span<Bytes> block, std::span<Words> words, Visit visit) const;

  std::size_t row_length_;
  std::vector<RowFormat> rows_;
  std::size_t bytes_ = 0;
};

// The Error(kWireFormat) for a word that no frame has.
[[noreturn]] void fail_word(std::size_t block);

}  // namespace shieldfl::packed
