// Sums of packed ciphertexts as they arrive: each is checked in the one pass in which it is added, and taken
// out again where it turns out damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "packed/block_format.h"

namespace shieldfl::packed {

class PackedSums {
 public:
  // Brings the sums of a block's words to the words of the same numbers, in place.
  using Reduce = std::function<void(std::span<std::uint64_t>)>;

  // `words`: that a block has. `most_additions`: the most words whose sum `reduce` takes. `threads`: as for
  // threads_for().
  PackedSums(std::size_t words, std::size_t most_additions, Reduce reduce, std::size_t threads);

  // Makes room for the sums of so many blocks, unless there is; what is in them stays. All memory is taken
  // here.
  void prepare(std::size_t blocks);

  // Adds prepare()d blocks in this format. Where `expected_checksum` is given, it is that of `head` and then
  // `payload`. Throws Error(kWireFormat) for a word that is not below its modulus, or another checksum, and
  // has changed nothing then.
  // The bytes may not change meanwhile.
  void add(const BlockFormat& format, std::span<const std::uint8_t> payload,
           std::span<const std::uint8_t> head, std::optional<std::uint32_t> expected_checksum);

  // Writes the sums, reduced, and returns the checksum of what came before, `checksum`, and them.
  std::uint32_t write(const BlockFormat& format, std::span<std::uint8_t> payload,
                      std::uint32_t checksum) const;

 private:
  [[nodiscard]] std::size_t blocks() const { return sums_.size() / words_; }
  [[nodiscard]] std::span<std::uint64_t> sums_of(std::size_t block);

  std::size_t words_;  // of one block
  std::size_t most_additions_;
  Reduce reduce_;
  std::size_t threads_;  // as requested
  // Block after block, rows of words as they travel; each a sum of `additions_` words.
  std::vector<std::uint64_t> sums_;
  std::size_t additions_ = 0;
};

}  // namespace shieldfl::packed
