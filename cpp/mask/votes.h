// Who chose what: counting masks that arrive one by one, and the positions that enough of them chose
// (SelectiveShield, eq. 16). consensus.h is for masks that are all at hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mask/bitset.h"
#include "mask/word_vector.h"

namespace shieldfl::mask {

// The smallest whole number c of votes with c / voters >= rho, both sides in double precision, as eq. 16 is
// written. That is ceil(rho * voters) but for the rounding of the product: 0.28 * 25 comes out a little above
// 7 and its ceiling is 8, although 7 of 25 voters are a share of 0.28. Throws Error(kParameter) unless 0 <
// rho <= 1 and voters > 0.
std::uint64_t votes_needed(double rho, std::uint64_t voters);

// Counters of votes per position: memory is bit_width(voters) bits a
// position. `threads`: 0 means all cores; no result depends on it. Not to be changed while another thread
// uses it.
class Votes {
 public:
  // Throws Error(kParameter) for more than kMaxPositions positions.
  explicit Votes(std::uint64_t size);

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t voters() const noexcept { return voters_; }
  // What the counters take: bit_width(voters()) bits a position, whole words.
  [[nodiscard]] std::uint64_t memory_bytes() const noexcept;

  // Throws Error(kParameter) for a mask of another size, Error(kCapacity) after 2^32 - 1 masks.
  void add(const Bitset& mask, std::size_t threads = 0);
  // Writes the votes per position. Throws Error(kParameter) unless out.size() == size().
  void counts(std::span<std::uint32_t> out, std::size_t threads = 0) const;
  // The positions with at least `threshold` votes; all of them where it is 0.
  [[nodiscard]] Bitset at_least(std::uint64_t threshold, std::size_t threads = 0) const;
  // at_least(votes_needed(rho, voters())), and its errors.
  [[nodiscard]] Bitset consensus(double rho, std::size_t threads = 0) const;

 private:
  std::uint64_t size_;
  std::uint64_t voters_ = 0;
  std::vector<WordVector> planes_;  // plane j holds bit j of every counter
};

}  // namespace shieldfl::mask
