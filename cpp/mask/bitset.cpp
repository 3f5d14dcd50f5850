#include "mask/bitset.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "common/error.h"
#include "common/verify.h"
#include "mask/word_kernels.h"
#include "mask/words.h"

namespace shieldfl::mask {
namespace {

const WordKernels& kernels() {
  return word_kernels(instruction_set());
}

void check_words(const WordVector& words, std::uint64_t size) {
  check_size(size);
  if (words.size() != words_for(size)) {
    fail_parameter("a mask of " + std::to_string(size) + " positions takes " +
                   std::to_string(words_for(size)) + " words, not " + std::to_string(words.size()));
  }
  if (!words.empty() && (words.back() & ~tail_bits(size)) != 0) {
    fail_parameter("the mask has bits set past its " + std::to_string(size) + " positions");
  }
}

}  // namespace

void check_size(std::uint64_t size) {
  if (size > kMaxPositions) {
    fail_parameter("a mask of " + std::to_string(size) + " positions is too large: the limit is " +
                   std::to_string(kMaxPositions));
  }
}

void check_same_size(std::uint64_t left, std::uint64_t right) {
  if (left != right) {
    fail_parameter("the masks have " + std::to_string(left) + " and " + std::to_string(right) +
                   " positions: use masks over the same parameters");
  }
}

Bitset::Bitset(std::uint64_t size) : size_(size) {
  check_size(size);
  words_.assign(words_for(size), 0);
}

Bitset::Bitset(WordVector words, std::uint64_t size)
    : size_(size), count_(kernels().count(words.data(), words.size())), words_(std::move(words)) {
  VERIFY(words_.size() == words_for(size_) && (words_.empty() || (words_.back() & ~tail_bits(size_)) == 0));
}

Bitset::Bitset(WordVector words, std::uint64_t size, std::uint64_t count) noexcept
    : size_(size), count_(count), words_(std::move(words)) {
  VERIFY(words_.size() == words_for(size_) && (words_.empty() || (words_.back() & ~tail_bits(size_)) == 0));
  VERIFY(count_ == kernels().count(words_.data(), words_.size()));
}

void Bitset::swap(Bitset& other) noexcept {
  std::swap(size_, other.size_);
  std::swap(count_, other.count_);
  words_.swap(other.words_);
  std::swap(content_id_, other.content_id_);
}

Bitset Bitset::full(std::uint64_t size) {
  check_size(size);
  WordVector words(words_for(size), kAllOnes);
  if (!words.empty()) words.back() = tail_bits(size);
  return {std::move(words), size, size};
}

Bitset Bitset::from_bools(std::span<const std::uint8_t> bools) {
  check_size(bools.size());
  WordVector words(words_for(bools.size()));
  const std::size_t whole = bools.size() / kWordBits;
  std::uint64_t count = kernels().from_bytes(bools.data(), words.data(), whole);
  if (whole != words.size()) {
    std::array<std::uint8_t, kWordBits> padded{};
    std::ranges::copy(bools.subspan(whole * kWordBits), padded.begin());
    count += kernels().from_bytes(padded.data(), words.data() + whole, 1);
  }
  return {std::move(words), bools.size(), count};
}

Bitset Bitset::from_indices(std::span<const std::int64_t> indices, std::uint64_t size) {
  check_size(size);
  WordVector words(words_for(size), 0);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto position = static_cast<std::uint64_t>(indices[i]);  // negative ones become too large
    if (position >= size) {
      fail_parameter("entry " + std::to_string(i) + " of the indices is outside the mask's " +
                     std::to_string(size) + " positions");
    }
    std::uint64_t& word = words[position / kWordBits];
    const std::uint64_t bit = std::uint64_t{1} << (position % kWordBits);
    if ((word & bit) != 0) {
      fail_parameter("entry " + std::to_string(i) +
                     " of the indices repeats an earlier one: give each index once");
    }
    word |= bit;
  }
  return {std::move(words), size, indices.size()};
}

Bitset Bitset::from_words(WordVector words, std::uint64_t size) {
  check_words(words, size);
  return {std::move(words), size};
}

Bitset Bitset::from_counted_words(WordVector words, std::uint64_t size, std::uint64_t count) {
  check_words(words, size);
  return {std::move(words), size, count};
}

Bitset Bitset::resized(std::uint64_t size, bool chosen) const {
  check_size(size);
  WordVector words(words_for(size), chosen ? kAllOnes : 0);
  std::copy_n(words_.begin(), std::min(words.size(), words_.size()), words.begin());
  if (chosen && size > size_ && !words_.empty()) words[words_.size() - 1] |= ~tail_bits(size_);
  if (!words.empty()) words.back() &= tail_bits(size);
  return {std::move(words), size};
}

Id Bitset::content_id() const {
  return content_id_.get([this] {
    const std::span<const std::uint8_t> content(reinterpret_cast<const std::uint8_t*>(words_.data()),
                                                count_ == size_ ? 0 : words_.size() * sizeof words_[0]);
    return digest(content, {reinterpret_cast<const std::uint8_t*>(&size_), sizeof size_});
  });
}

bool Bitset::test(std::uint64_t position) const {
  if (position >= size_) {
    fail_parameter("position " + std::to_string(position) + " is outside the mask's " +
                   std::to_string(size_) + " positions");
  }
  return ((words_[position / kWordBits] >> (position % kWordBits)) & 1) != 0;
}

void Bitset::to_bools(std::span<std::uint8_t> out) const {
  if (out.size() != size_) {
    fail_parameter("the output has " + std::to_string(out.size()) + " entries and the mask " +
                   std::to_string(size_) + " positions");
  }
  const std::size_t whole = size_ / kWordBits;
  kernels().to_bytes(words_.data(), out.data(), whole);
  if (whole != words_.size()) {
    std::array<std::uint8_t, kWordBits> padded;
    kernels().to_bytes(words_.data() + whole, padded.data(), 1);
    std::copy_n(padded.begin(), size_ % kWordBits,
                out.begin() + static_cast<std::ptrdiff_t>(whole * kWordBits));
  }
}

void Bitset::to_indices(std::span<std::int64_t> out) const {
  if (out.size() != count_) {
    fail_parameter("the output has " + std::to_string(out.size()) + " entries and the mask " +
                   std::to_string(count_) + " chosen positions");
  }
  std::int64_t* next = out.data();
  for (std::size_t w = 0; w < words_.size(); ++w) {
    for_each_bit(words_[w], w * kWordBits,
                 [&](std::uint64_t position) { *next++ = static_cast<std::int64_t>(position); });
  }
}

template <typename Combine>
Bitset Bitset::combined(const Bitset& left, const Bitset& right, Combine combine) {
  check_same_size(left.size_, right.size_);
  WordVector words(left.words_.size());
  for (std::size_t w = 0; w < words.size(); ++w) words[w] = combine(left.words_[w], right.words_[w]);
  return {std::move(words), left.size_};
}

Bitset operator&(const Bitset& left, const Bitset& right) {
  return Bitset::combined(left, right, [](std::uint64_t a, std::uint64_t b) { return a & b; });
}

Bitset operator|(const Bitset& left, const Bitset& right) {
  return Bitset::combined(left, right, [](std::uint64_t a, std::uint64_t b) { return a | b; });
}

Bitset operator-(const Bitset& left, const Bitset& right) {
  return Bitset::combined(left, right, [](std::uint64_t a, std::uint64_t b) { return a & ~b; });
}

Bitset operator~(const Bitset& set) {
  return Bitset::combined(Bitset::full(set.size_), set,
                          [](std::uint64_t a, std::uint64_t b) { return a & ~b; });
}

bool operator==(const Bitset& left, const Bitset& right) noexcept {
  return left.size_ == right.size_ && left.count_ == right.count_ && left.words_ == right.words_;
}

}  // namespace shieldfl::mask
