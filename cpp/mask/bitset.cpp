#include "mask/bitset.h"

#include <cstring>
#include <string>
#include <utility>

#include "common/error.h"
#include "mask/words.h"

namespace shieldfl::mask {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kParameter, what);
}

}  // namespace

void check_size(std::uint64_t size) {
  if (size > kMaxPositions) {
    fail("a mask of " + std::to_string(size) + " positions is too large: the limit is " +
         std::to_string(kMaxPositions));
  }
}

void check_same_size(std::uint64_t left, std::uint64_t right) {
  if (left != right) {
    fail("the masks have " + std::to_string(left) + " and " + std::to_string(right) +
         " positions: use masks over the same parameters");
  }
}

Bitset::Bitset(std::uint64_t size) : size_(size) {
  check_size(size);
  words_.assign(words_for(size), 0);
}

Bitset::Bitset(std::vector<std::uint64_t> words, std::uint64_t size)
    : size_(size), count_(count_bits(words)), words_(std::move(words)) {}

void Bitset::swap(Bitset& other) noexcept {
  std::swap(size_, other.size_);
  std::swap(count_, other.count_);
  words_.swap(other.words_);
}

Bitset Bitset::full(std::uint64_t size) {
  check_size(size);
  std::vector<std::uint64_t> words(words_for(size), kAllOnes);
  if (!words.empty()) words.back() = tail_bits(size);
  return {std::move(words), size};
}

Bitset Bitset::from_bools(std::span<const std::uint8_t> bools) {
  check_size(bools.size());
  std::vector<std::uint64_t> words(words_for(bools.size()));
  for (std::size_t w = 0; w < words.size(); ++w) {
    const auto source = bools.subspan(w * kWordBits);
    std::uint64_t word = 0;
    if (source.size() >= kWordBits) {
      for (std::size_t part = 0; part < 8; ++part) {
        std::uint64_t eight_bytes;
        std::memcpy(&eight_bytes, source.data() + 8 * part, sizeof eight_bytes);
        word |= bytes_to_bits(eight_bytes) << (8 * part);
      }
    } else {
      for (std::size_t i = 0; i < source.size(); ++i) word |= std::uint64_t{source[i] != 0} << i;
    }
    words[w] = word;
  }
  return {std::move(words), bools.size()};
}

Bitset Bitset::from_indices(std::span<const std::int64_t> indices, std::uint64_t size) {
  check_size(size);
  std::vector<std::uint64_t> words(words_for(size));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto position = static_cast<std::uint64_t>(indices[i]);  // negative ones become too large
    if (position >= size) {
      fail("entry " + std::to_string(i) + " of the indices is outside the mask's " + std::to_string(size) +
           " positions");
    }
    std::uint64_t& word = words[position / kWordBits];
    const std::uint64_t bit = std::uint64_t{1} << (position % kWordBits);
    if ((word & bit) != 0) {
      fail("entry " + std::to_string(i) + " of the indices repeats an earlier one: give each index once");
    }
    word |= bit;
  }
  return {std::move(words), size};
}

Bitset Bitset::from_words(std::vector<std::uint64_t> words, std::uint64_t size) {
  check_size(size);
  if (words.size() != words_for(size)) {
    fail("a mask of " + std::to_string(size) + " positions takes " + std::to_string(words_for(size)) +
         " words, not " + std::to_string(words.size()));
  }
  if (!words.empty() && (words.back() & ~tail_bits(size)) != 0) {
    fail("the mask has bits set past its " + std::to_string(size) + " positions");
  }
  return {std::move(words), size};
}

bool Bitset::test(std::uint64_t position) const {
  if (position >= size_) {
    fail("position " + std::to_string(position) + " is outside the mask's " + std::to_string(size_) +
         " positions");
  }
  return ((words_[position / kWordBits] >> (position % kWordBits)) & 1) != 0;
}

void Bitset::to_bools(std::span<std::uint8_t> out) const {
  if (out.size() != size_) {
    fail("the output has " + std::to_string(out.size()) + " entries and the mask " + std::to_string(size_) +
         " positions");
  }
  for (std::size_t w = 0; w < words_.size(); ++w) {
    const std::uint64_t word = words_[w];
    const auto target = out.subspan(w * kWordBits);
    if (target.size() >= kWordBits) {
      for (std::size_t part = 0; part < 8; ++part) {
        const std::uint64_t eight_bytes = bits_to_bytes((word >> (8 * part)) & 0xff);
        std::memcpy(target.data() + 8 * part, &eight_bytes, sizeof eight_bytes);
      }
    } else {
      for (std::size_t i = 0; i < target.size(); ++i) target[i] = static_cast<std::uint8_t>((word >> i) & 1);
    }
  }
}

void Bitset::to_indices(std::span<std::int64_t> out) const {
  if (out.size() != count_) {
    fail("the output has " + std::to_string(out.size()) + " entries and the mask " + std::to_string(count_) +
         " chosen positions");
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
  std::vector<std::uint64_t> words(left.words_.size());
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

}  // namespace shieldfl::mask
