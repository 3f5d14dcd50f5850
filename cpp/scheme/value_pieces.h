// A client's values in as many arrays as its model has, one after the other: nothing is copied to join them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/secure_memory.h"
#include "mask/rank_index.h"

namespace shieldfl::scheme {

// Refers to the arrays. T is float or double. Safe to read from several threads.
template <typename T>
class ValuePieces {
 public:
  explicit ValuePieces(std::span<const T> whole);
  explicit ValuePieces(std::vector<std::span<const T>> pieces);

  [[nodiscard]] std::uint64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // Precondition: position < size().
  T operator[](std::uint64_t position) const;

  // The values [first, first + count): where they lie if they are in one array, else copied to `scratch`.
  // Precondition: first + count <= size().
  std::span<const T> read(std::uint64_t first, std::size_t count, SecretVector<T>& scratch) const;

  // Writes the values that the mask of `ranks` chooses, of ranks [first_rank, first_rank + out.size()).
  // Throws Error(kParameter) for a mask of another size, and where the ranks go past its count.
  void gather(const mask::RankIndex& ranks, std::uint64_t first_rank, std::span<T> out) const;

 private:
  // The array that holds a position, and where it begins.
  struct Place {
    std::size_t piece;
    std::uint64_t begin;
  };
  [[nodiscard]] Place locate(std::uint64_t position) const;

  std::vector<std::span<const T>> pieces_;  // none of them empty
  std::vector<std::uint64_t> ends_;
};

}  // namespace shieldfl::scheme
