// Where in a mask the r-th chosen position is: what lets a thread start in the middle of the chosen values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/verify.h"
#include "mask/bitset.h"

namespace shieldfl::mask {

// Counts per block of 4096 positions, 4 bytes each. Refers to the mask, which must outlive the index.
class RankIndex {
 public:
  static constexpr std::uint64_t kBlockWords = 64;

  // `threads`: 0 means threads_for().
  explicit RankIndex(const Bitset& mask, std::size_t threads = 0);
  RankIndex(Bitset&&, std::size_t = 0) = delete;

  [[nodiscard]] std::uint64_t size() const { return mask_->size(); }
  [[nodiscard]] std::uint64_t count() const noexcept { return before_.back(); }
  // The number of chosen positions in the blocks before `block`, which is at most the number of blocks.
  [[nodiscard]] std::uint64_t rank_of_block(std::uint64_t block) const {
    VERIFY(block < before_.size());
    return before_[block];
  }
  // Writes the chosen positions of ranks [first_rank, first_rank + count) in ascending order; `out` takes
  // `count` of them. Throws Error(kParameter) where that goes past count(). Safe from several threads.
  void gather_positions(std::uint64_t first_rank, std::uint64_t count, std::uint32_t* out) const;
  // The same for the values at these positions. T is float or double; `dense` has an entry for every position
  // of the mask, or this throws Error(kParameter).
  template <typename T>
  void gather_values(std::span<const T> dense, std::uint64_t first_rank, std::uint64_t count, T* out) const;

 private:
  struct Place {
    std::uint64_t word_index;
    std::uint64_t word;  // its lowest set bit is the place; earlier bits are cleared
  };
  [[nodiscard]] Place locate(std::uint64_t rank) const;
  void check_ranks(std::uint64_t first_rank, std::uint64_t count) const;

  const Bitset* mask_;
  std::vector<std::uint32_t> before_;  // one per block, then the total
};

}  // namespace shieldfl::mask
