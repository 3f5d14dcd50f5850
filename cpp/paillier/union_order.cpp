#include "paillier/union_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "common/error.h"
#include "common/wire.h"
#include "mask/mask_codec.h"
#include "mask/votes.h"
#include "mask/words.h"

namespace shieldfl::paillier {
namespace {

// Whether a new ascending run begins at this place.
bool begins_run(std::span<const std::uint32_t> positions, std::size_t place) {
  return place == 0 || positions[place] < positions[place - 1];
}

// Small numbers in as few bits as the largest takes, low bits first.
struct LevelCode {
  explicit LevelCode(std::uint32_t levels) : bits(std::max<unsigned>(1, std::bit_width(levels - 1))) {}

  [[nodiscard]] std::size_t bytes(std::size_t count) const { return (count * bits + 7) / 8; }

  void put(std::span<std::uint8_t> code, std::size_t index, std::uint32_t level) const {
    for (unsigned i = 0; i < bits; ++i) {
      const std::size_t bit = index * bits + i;
      code[bit / 8] = static_cast<std::uint8_t>(code[bit / 8] | ((level >> i & 1U) << (bit % 8)));
    }
  }
  [[nodiscard]] std::uint32_t get(std::span<const std::uint8_t> code, std::size_t index) const {
    std::uint32_t level = 0;
    for (unsigned i = 0; i < bits; ++i) {
      const std::size_t bit = index * bits + i;
      level |= (code[bit / 8] >> (bit % 8) & 1U) << i;
    }
    return level;
  }

  unsigned bits;
};

// Places `positions`, ascending, by level, and in their order within each level: a counting sort. level(i) is
// that of positions[i], below `levels`. Returns where each level begins, and the end.
template <typename Level>
std::vector<std::size_t> sort_by_level(std::span<const std::uint32_t> positions, std::size_t levels,
                                       Level level, std::span<std::uint32_t> out) {
  std::vector<std::size_t> begins(levels + 1, 0);
  for (std::size_t i = 0; i < positions.size(); ++i) ++begins[level(i) + 1];
  for (std::size_t i = 0; i < levels; ++i) begins[i + 1] += begins[i];
  std::vector<std::size_t> next = begins;
  for (std::size_t i = 0; i < positions.size(); ++i) out[next[level(i)]++] = positions[i];
  return begins;
}

std::vector<std::uint32_t> positions_in(const mask::Bitset& mask) {
  std::vector<std::uint32_t> positions;
  positions.reserve(mask.count());
  const auto words = mask.words();
  for (std::size_t i = 0; i < words.size(); ++i) {
    mask::for_each_bit(words[i], i * mask::kWordBits, [&](std::uint64_t position) {
      positions.push_back(static_cast<std::uint32_t>(position));
    });
  }
  return positions;
}

}  // namespace

UnionOrder::UnionOrder(std::uint64_t size, std::vector<std::uint32_t> positions)
    : size_(size), positions_(std::move(positions)) {
  // The key is longer than the one of masks' identifiers: none of theirs can be the same.
  const std::array<std::uint64_t, 2> key = {size_, positions_.size()};
  id_ = digest(
      {reinterpret_cast<const std::uint8_t*>(positions_.data()), positions_.size() * sizeof positions_[0]},
      {reinterpret_cast<const std::uint8_t*>(key.data()), sizeof key});
}

UnionOrder UnionOrder::from_masks(std::span<const mask::Bitset* const> masks, std::size_t threads) {
  if (masks.empty()) throw Error(ErrorCode::kParameter, "an order of the union needs at least one mask");
  mask::Votes votes(masks.front()->size());
  for (const mask::Bitset* const mask : masks) votes.add(*mask, threads);
  std::vector<std::uint32_t> counts(votes.size());
  votes.counts(counts, threads);

  const std::vector<std::uint32_t> ascending = positions_in(votes.at_least(1, threads));
  std::vector<std::uint32_t> positions(ascending.size());
  sort_by_level(
      ascending, masks.size(), [&](std::size_t i) { return masks.size() - counts[ascending[i]]; }, positions);
  return UnionOrder(votes.size(), std::move(positions));
}

mask::Bitset UnionOrder::blocks_of(const mask::Bitset& mask, std::size_t capacity) const {
  mask::check_same_size(mask.size(), size_);
  const auto chosen = mask.words();
  const std::size_t blocks = (positions_.size() + capacity - 1) / capacity;
  mask::WordVector words(mask::words_for(blocks), 0);
  std::uint64_t found = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    std::uint64_t in_block = 0;
    const std::size_t end = std::min(positions_.size(), (block + 1) * capacity);
    for (std::size_t i = block * capacity; i < end; ++i) {
      in_block += chosen[positions_[i] / mask::kWordBits] >> (positions_[i] % mask::kWordBits) & 1;
    }
    found += in_block;
    words[block / mask::kWordBits] |= std::uint64_t{in_block != 0} << (block % mask::kWordBits);
  }
  if (found != mask.count()) {
    throw Error(ErrorCode::kParameter, "the mask has " + std::to_string(mask.count() - found) +
                                           " positions outside of the union: make the order from all masks");
  }
  return mask::Bitset::from_words(std::move(words), blocks);
}

std::vector<std::uint8_t> UnionOrder::to_frame() const {
  mask::WordVector words(mask::words_for(size_), 0);
  std::uint32_t levels = 0;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    words[positions_[i] / mask::kWordBits] |= std::uint64_t{1} << (positions_[i] % mask::kWordBits);
    levels += begins_run(positions_, i) ? 1 : 0;
  }
  const mask::Bitset united = mask::Bitset::from_words(std::move(words), size_);
  const std::vector<std::uint8_t> mask_frame = mask::encode_mask(united);

  const LevelCode code(std::max(levels, 1U));
  const std::size_t code_bytes = code.bytes(positions_.size());
  FrameWriter writer({FrameKind::kUnionOrder, {}, {}}, 8 + mask_frame.size() + 4 + code_bytes);
  writer.put(std::uint64_t{mask_frame.size()});
  writer.put_bytes(mask_frame);
  writer.put(levels);
  const auto coded = writer.reserve(code_bytes);
  // Levels are written in ascending order of position; memory is that of the union, whatever the update's
  // size.
  const std::vector<std::uint32_t> ascending = positions_in(united);
  std::uint32_t next_level = 0;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    next_level += begins_run(positions_, i) ? 1 : 0;
    const auto place = std::ranges::lower_bound(ascending, positions_[i]) - ascending.begin();
    code.put(coded, static_cast<std::size_t>(place), next_level - 1);
  }
  return writer.finish();
}

UnionOrder UnionOrder::from_frame(std::span<const std::uint8_t> frame,
                                  std::optional<std::uint64_t> expected_size) {
  FrameReader reader(frame, FrameKind::kUnionOrder);
  if (reader.header().parameter_id != Id{} || reader.header().key_id != Id{}) {
    fail_wire_format(
        "a union order belongs to no parameters and no key, and this one names some: it was altered");
  }
  const auto mask_bytes = reader.take<std::uint64_t>();
  if (mask_bytes > reader.remaining()) {
    fail_wire_format("the union order ends before its mask does: it was altered");
  }
  const auto mask_frame = reader.take_bytes(mask_bytes);
  const auto levels = reader.take<std::uint32_t>();
  const std::size_t count = mask::inspect_mask(mask_frame).count;
  if (levels > count || (levels == 0) != (count == 0)) {
    fail_wire_format(
        "the union order states a number of runs that its positions cannot have: it was altered");
  }
  const LevelCode code(std::max(levels, 1U));
  const auto coded = reader.take_bytes(code.bytes(count));
  reader.expect_end();
  // Before it is decoded, for `count` positions cost more memory than the frame.
  const unsigned used = static_cast<unsigned>(count * code.bits % 8);
  if (used != 0 && coded.back() >> used != 0) {
    fail_wire_format("the union order's padding is not zero: it was altered");
  }

  const mask::Bitset united = mask::decode_mask(mask_frame, expected_size);
  const std::vector<std::uint32_t> ascending = positions_in(united);
  for (std::size_t i = 0; i < count; ++i) {
    if (code.get(coded, i) >= levels) {
      fail_wire_format("the union order has a run past its last one: it was altered");
    }
  }
  std::vector<std::uint32_t> positions(count);
  const std::vector<std::size_t> begins =
      sort_by_level(ascending, levels, [&](std::size_t i) { return code.get(coded, i); }, positions);
  for (std::size_t level = 0; level < levels; ++level) {
    if (begins[level] == begins[level + 1] || !begins_run(positions, begins[level])) {
      fail_wire_format("the union order's runs are not the longest ones: it was altered");
    }
  }
  return UnionOrder(united.size(), std::move(positions));
}

}  // namespace shieldfl::paillier
