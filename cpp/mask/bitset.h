// A mask: a set of positions out of [0, size), one bit each. Immutable once built.
#pragma once

#include <cstdint>
#include <span>

#include "common/digest.h"
#include "mask/cached_id.h"
#include "mask/word_vector.h"

namespace shieldfl::mask {

// The largest mask: 2^31 positions, 256 MiB of bits. Positions fit 32 bits, signed or not.
inline constexpr std::uint64_t kMaxPositions = std::uint64_t{1} << 31;

// Throws Error(kParameter) where `size` is above kMaxPositions.
void check_size(std::uint64_t size);
// Throws Error(kParameter), naming both sizes, unless they are equal.
void check_same_size(std::uint64_t left, std::uint64_t right);

// Invariant: words() has words_for(size()) words, whose bits past size() are zero.
// Wherever a size is taken, one above kMaxPositions is an Error(kParameter); size 0 is allowed.
class Bitset {
 public:
  // No positions at all.
  Bitset() = default;
  // The empty set.
  explicit Bitset(std::uint64_t size);
  Bitset(const Bitset&) = default;
  Bitset(Bitset&& other) noexcept : Bitset() { swap(other); }
  Bitset& operator=(Bitset other) noexcept {
    swap(other);
    return *this;
  }
  ~Bitset() = default;

  static Bitset full(std::uint64_t size);
  // One byte per position; every byte but 0 means chosen.
  static Bitset from_bools(std::span<const std::uint8_t> bools);
  // In any order. Throws Error(kParameter) for an index outside [0, size) and for one given twice, naming its
  // place in `indices`.
  static Bitset from_indices(std::span<const std::int64_t> indices, std::uint64_t size);
  // Throws Error(kParameter) unless `words` fulfils the invariant for `size`.
  static Bitset from_words(WordVector words, std::uint64_t size);
  // The same where the caller has counted the set bits while writing the words: `count` must be their number.
  static Bitset from_counted_words(WordVector words, std::uint64_t size, std::uint64_t count);

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  // The number of chosen positions; kept, so it costs nothing.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept { return words_; }
  // Stands for this set of positions in frames: the digest of the words, or of nothing where all positions
  // are chosen, with the size as its key. Computed once; safe from several threads.
  [[nodiscard]] Id content_id() const;
  // Throws Error(kParameter) for a position that is not below size().
  [[nodiscard]] bool test(std::uint64_t position) const;

  // Writes 0 or 1 per position. Throws Error(kParameter) unless out.size() == size().
  void to_bools(std::span<std::uint8_t> out) const;
  // Writes the chosen positions in ascending order. Throws Error(kParameter) unless out.size() == count().
  void to_indices(std::span<std::int64_t> out) const;

  // The same set among `size` positions: what is past them is left out, and positions past this set's own are
  // chosen if `chosen`.
  [[nodiscard]] Bitset resized(std::uint64_t size, bool chosen) const;

  // Set algebra. Throws Error(kParameter), naming both sizes, where they differ.
  friend Bitset operator&(const Bitset& left, const Bitset& right);
  friend Bitset operator|(const Bitset& left, const Bitset& right);
  // The positions of `left` that are not in `right`.
  friend Bitset operator-(const Bitset& left, const Bitset& right);
  friend Bitset operator~(const Bitset& set);
  // Masks of different sizes are different.
  friend bool operator==(const Bitset& left, const Bitset& right) noexcept;

 private:
  Bitset(WordVector words, std::uint64_t size);
  Bitset(WordVector words, std::uint64_t size, std::uint64_t count) noexcept;
  void swap(Bitset& other) noexcept;
  template <typename Combine>
  static Bitset combined(const Bitset& left, const Bitset& right, Combine combine);

  std::uint64_t size_ = 0;
  std::uint64_t count_ = 0;
  WordVector words_;
  CachedId content_id_;
};

}  // namespace shieldfl::mask
