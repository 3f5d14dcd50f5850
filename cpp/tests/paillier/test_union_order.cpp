#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "mask/mask_codec.h"
#include "paillier/union_order.h"
#include "scheme/layout.h"
#include "tests/altered_frames.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace paillier_union_order_tests {

using namespace shieldfl;
using paillier::UnionOrder;
using tests::Frame;

namespace {

// By the definition: popular positions first, then by position.
std::vector<std::uint32_t> sorted_positions(const std::vector<tests::Bools>& clients, std::size_t size) {
  std::vector<std::uint32_t> votes(size, 0);
  for (const tests::Bools& bools : clients) {
    for (std::size_t i = 0; i < size; ++i) votes[i] += bools[i];
  }
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (votes[i] > 0) positions.push_back(i);
  }
  std::stable_sort(positions.begin(), positions.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return votes[a] > votes[b]; });
  return positions;
}

std::vector<mask::Bitset> masks_of(const std::vector<tests::Bools>& clients) {
  std::vector<mask::Bitset> masks;
  for (const tests::Bools& bools : clients) masks.push_back(mask::Bitset::from_bools(bools));
  return masks;
}

UnionOrder order_of(const std::vector<mask::Bitset>& masks, std::size_t threads = 1) {
  return UnionOrder::from_masks(tests::pointers(masks), threads);
}

mask::Bitset mask_of(const std::vector<std::int64_t>& positions, std::uint64_t size) {
  return mask::Bitset::from_indices(positions, size);
}

bool equal(const UnionOrder& left, const UnionOrder& right) {
  return left.size() == right.size() && left.id() == right.id() &&
         std::ranges::equal(left.positions(), right.positions());
}

// An order of three runs: 3 7 9, then 2 8, then 0 5.
UnionOrder small_order() {
  return order_of({mask_of({3, 7, 9, 2, 8, 0, 5}, 10), mask_of({3, 7, 9, 2, 8}, 10), mask_of({3, 7, 9}, 10)});
}

}  // namespace

TEST(popular_positions_come_first_in_a_union) {
  std::mt19937_64 generator(401);
  for (const std::size_t size : tests::kSizes) {
    for (const std::size_t count : {1U, 2U, 5U, 40U}) {
      const std::vector<tests::Bools> clients = tests::random_clients(count, size, generator);
      const std::vector<mask::Bitset> masks = masks_of(clients);
      const UnionOrder order = order_of(masks);
      CHECK(order.size() == size);
      CHECK(std::ranges::equal(order.positions(), sorted_positions(clients, size)));
      for (const std::size_t threads : {2U, 3U}) CHECK(equal(order_of(masks, threads), order));
      CHECK(equal(UnionOrder::from_frame(order.to_frame()), order));
      CHECK(equal(UnionOrder::from_frame(order.to_frame(), size), order));
    }
  }
  CHECK_THROWS(UnionOrder::from_masks({}), ErrorCode::kParameter);
  CHECK_THROWS(order_of({mask::Bitset(5), mask::Bitset(6)}), ErrorCode::kParameter);
}

TEST(the_blocks_of_a_mask_are_those_with_its_positions) {
  std::mt19937_64 generator(402);
  const std::vector<tests::Bools> clients = tests::random_clients(6, 500, generator);
  const std::vector<mask::Bitset> masks = masks_of(clients);
  const UnionOrder order = order_of(masks);
  for (const std::size_t capacity : {1U, 3U, 64U, 499U, 1000U}) {
    for (const mask::Bitset& mask : masks) {
      const mask::Bitset blocks = order.blocks_of(mask, capacity);
      CHECK(blocks.size() == (order.positions().size() + capacity - 1) / capacity);
      std::vector<bool> expected(blocks.size());
      for (std::size_t i = 0; i < order.positions().size(); ++i) {
        if (mask.test(order.positions()[i])) expected[i / capacity] = true;
      }
      for (std::size_t block = 0; block < blocks.size(); ++block)
        CHECK(blocks.test(block) == expected[block]);
    }
  }
  CHECK_THROWS(small_order().blocks_of(mask_of({3, 4}, 10), 2), ErrorCode::kParameter);
  CHECK_THROWS(small_order().blocks_of(mask_of({3}, 11), 2), ErrorCode::kParameter);
  CHECK(small_order().blocks_of(mask_of({3, 5}, 10), 2) == mask_of({0, 3}, 4));
}

TEST(equal_orders_have_equal_identifiers_and_no_others) {
  const UnionOrder order = small_order();
  CHECK(std::ranges::equal(order.positions(), std::vector<std::uint32_t>{3, 7, 9, 2, 8, 0, 5}));
  // The same order from other votes.
  CHECK(equal(order, order_of({mask_of({3, 7, 9, 2, 8, 0, 5}, 10), mask_of({3, 7, 9, 2, 8}, 10),
                               mask_of({3, 7, 9}, 10), mask_of({3}, 10)})));
  CHECK(order.id() != order_of({mask_of({3, 7, 9, 2, 8, 0, 5}, 10)}).id());
  CHECK(order.id() !=
        order_of({mask_of({3, 7, 9, 2, 8, 0, 5}, 11), mask_of({3, 7, 9, 2, 8}, 11), mask_of({3, 7, 9}, 11)})
            .id());
  // Nor the identifier of a mask, not even where the order is the mask's own.
  const mask::Bitset all = mask::Bitset::full(10);
  CHECK(order_of({all}).id() != scheme::mask_id(10, &all));
  CHECK(order_of({mask::Bitset(0)}).id() != scheme::mask_id(0, nullptr));
}

TEST(every_truncation_and_every_flipped_byte_of_a_union_order_is_refused) {
  const UnionOrder order = small_order();
  const Frame frame = order.to_frame();
  for (std::size_t size = 0; size < frame.size(); ++size) {
    Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_THROWS(UnionOrder::from_frame(cut), ErrorCode::kWireFormat);
    tests::reseal(cut);
    CHECK_THROWS(UnionOrder::from_frame(cut), ErrorCode::kWireFormat);
  }
  for (std::size_t at = 0; at < frame.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      Frame altered = frame;
      altered[at] = static_cast<std::uint8_t>(altered[at] ^ (1U << bit));
      CHECK_THROWS(UnionOrder::from_frame(altered), ErrorCode::kWireFormat);
    }
  }
  CHECK_THROWS(UnionOrder::from_frame(frame, 11), ErrorCode::kWireFormat);
}

TEST(there_is_one_frame_for_every_union_order) {
  const Frame frame = small_order().to_frame();
  const std::size_t code = frame.size() - kFrameTrailerBytes - 2;  // seven levels of two bits
  const std::size_t levels = code - 4;
  CHECK(tests::field_at<std::uint32_t>(frame, levels) == 3);
  // Positions 0 2 3 5 7 8 9 are of runs 2 1 0 2 0 1 0.
  const unsigned right = 0b00'01'00'10'00'01'10;
  CHECK(tests::field_at<std::uint16_t>(frame, code) == right);
  std::size_t accepted = 0;
  for (unsigned other = 0; other < (1U << 16); ++other) {
    const Frame altered = tests::with_field(frame, code, static_cast<std::uint16_t>(other));
    try {
      CHECK(UnionOrder::from_frame(altered).to_frame() == altered);
      ++accepted;
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kWireFormat);
    }
  }
  // The orders of seven positions in three ascending runs: Euler's number A(7, 2).
  CHECK(accepted == 1191);
  for (const std::uint32_t other : {0U, 1U, 2U, 4U, 5U, 8U, ~0U}) {
    CHECK_THROWS(UnionOrder::from_frame(tests::with_field(frame, levels, other)), ErrorCode::kWireFormat);
  }
}

TEST(a_short_frame_does_not_state_many_positions) {
  // All of 2^31 positions, in a mask of a few bytes; no levels follow.
  const Frame mask_frame = [] {
    Frame short_mask = mask::encode_mask(mask::Bitset::full(1000));
    short_mask = tests::with_field(short_mask, kFrameHeaderBytes, std::uint64_t{1} << 31);
    return tests::with_field(short_mask, kFrameHeaderBytes + 8, std::uint64_t{1} << 31);
  }();
  CHECK(mask::inspect_mask(mask_frame).count == std::uint64_t{1} << 31);
  FrameWriter writer({FrameKind::kUnionOrder, {}, {}}, 8 + mask_frame.size() + 4);
  writer.put(std::uint64_t{mask_frame.size()});
  writer.put_bytes(mask_frame);
  writer.put(std::uint32_t{1});
  CHECK_THROWS(UnionOrder::from_frame(writer.finish()), ErrorCode::kWireFormat);
}

}  // namespace paillier_union_order_tests
