// A frame that turns out damaged while it is being added leaves the sum as it was.
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/packed/damaged_frames.h"

namespace ckks_undo_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::Frame;
using tests::key_pair;
using tests::Values;

namespace {

const std::vector<ParameterRequest> kRequests = {
    {Packing::kExact, 6, 24, 20, {}}, {Packing::kExact, 6, 24, 20, 4096}, {Packing::kSlots, 6, 16, 10, {}}};
constexpr std::size_t kThreads[] = {1, 2, 5};

Frame batch_of(const KeyPair& keys, std::size_t blocks, SeedSource& seeds) {
  return tests::encrypt(keys, Values(blocks * tests::facts_of(keys).values_per_block() - 3, 0.5), seeds);
}

void check_undone(const KeyPair& keys, std::size_t threads) {
  InsecureTestRandom seeds(threads);
  const std::size_t blocks = 7;
  const Frame first = batch_of(keys, blocks, seeds);
  const Frame second = batch_of(keys, blocks, seeds);
  const Frame third = batch_of(keys, blocks, seeds);
  const Frame subtotal = tests::total_of(keys, {second, third});
  const Frame expected = tests::total_of(keys, {first});
  const Frame expected_of_all = tests::total_of(keys, {first, second, third});
  // Nothing comes before the damaged frame, a batch, or a total.
  Aggregator empty(keys.public_key, {}, threads);
  Aggregator aggregator(keys.public_key, {}, threads);
  aggregator.add(first);
  const auto refuses = [&](const std::function<void(Aggregator&)>& add) {
    for (Aggregator* target : {&empty, &aggregator}) {
      CHECK_THROWS((add(*target), 0), ErrorCode::kWireFormat);
    }
    CHECK(empty.clients() == 0 && !empty.round() && aggregator.clients() == 1);
    CHECK(tests::total_of(aggregator) == expected);
  };
  for (const Frame& frame : tests::damaged(CiphertextView::parse(second, FrameKind::kCkksBatch))) {
    refuses([&](Aggregator& target) { target.add(frame); });
  }
  for (const Frame& frame : tests::damaged(CiphertextView::parse(subtotal, FrameKind::kCkksTotal))) {
    refuses([&](Aggregator& target) { target.add_total(frame); });
  }
  CHECK_THROWS(tests::total_of(empty), ErrorCode::kParameter);

  // Both go on as if nothing had happened: the empty one also with other positions.
  aggregator.add_total(subtotal);
  CHECK(tests::total_of(aggregator) == expected_of_all);
  const Frame shorter = batch_of(keys, blocks - 2, seeds);
  empty.add(shorter);
  CHECK(tests::total_of(empty) == tests::total_of(keys, {shorter}));
  CHECK_THROWS((empty.add(first), 0), ErrorCode::kParameter);
}

}  // namespace

TEST(a_damaged_frame_is_taken_out_of_the_sum_again) {
  for (const ParameterRequest& request : kRequests) {
    for (const std::size_t threads : kThreads) check_undone(key_pair(request), threads);
  }
}

TEST(a_parsed_head_does_not_vouch_for_residues) {
  InsecureTestRandom seeds(7);
  const KeyPair& keys = key_pair(kRequests[0]);
  const Frame good = batch_of(keys, 2, seeds);
  const CiphertextView view = CiphertextView::parse(good, FrameKind::kCkksBatch);
  const Frame bad = tests::with_packed(view, {1, 1, 5}, ~std::uint64_t{0});
  Aggregator aggregator(keys.public_key, {}, 2);
  aggregator.add(batch_of(keys, 2, seeds));
  const Frame before = tests::total_of(aggregator);
  CHECK_THROWS((aggregator.add(CiphertextView::parse_head(bad, FrameKind::kCkksBatch)), 0),
               ErrorCode::kWireFormat);
  CHECK(tests::total_of(aggregator) == before);
  aggregator.add(view);
  CHECK(aggregator.clients() == 2);
}

TEST(the_memory_for_a_total_may_come_late_or_not_at_all) {
  InsecureTestRandom seeds(8);
  const KeyPair& keys = key_pair(kRequests[0]);
  std::vector<Frame> batches;
  for (int i = 0; i < 3; ++i) batches.push_back(batch_of(keys, 3, seeds));
  Aggregator aggregator(keys.public_key, {}, 2);
  aggregator.add(batches[0]);

  // The sum grows, twice, while memory is being found.
  std::vector<std::size_t> asked;
  Frame total;
  aggregator.total([&](std::size_t bytes) {
    asked.push_back(bytes);
    if (asked.size() < batches.size()) aggregator.add(batches[asked.size()]);
    total.assign(bytes, 0xee);
    return std::span(total);
  });
  CHECK(asked.size() == 3 && asked[0] + 16 == asked[1] && asked[1] + 16 == asked[2]);
  CHECK(total == tests::total_of(keys, batches));

  // Memory of another length is a mistake of the caller's.
  for (const int difference : {-1, 1}) {
    const auto other = [&](std::size_t bytes) {
      total.assign(bytes + static_cast<std::size_t>(difference), 0);
      return std::span(total);
    };
    CHECK_THROWS((aggregator.total(other), 0), ErrorCode::kInternal);
  }
  const auto none = [](std::size_t) { return std::span<std::uint8_t>(); };
  CHECK_THROWS((aggregator.total(none), 0), ErrorCode::kInternal);
  const auto failing = [](std::size_t) -> std::span<std::uint8_t> {
    throw Error(ErrorCode::kCapacity, "no memory");
  };
  CHECK_THROWS((aggregator.total(failing), 0), ErrorCode::kCapacity);
  CHECK(tests::total_of(aggregator) == tests::total_of(keys, batches));
}

TEST(more_batches_than_are_added_without_reduction_are_exact) {
  // Sums of digits are reduced after 8,191 additions; a damaged frame around that comes out again.
  InsecureTestRandom seeds(10);
  const ParameterRequest request{Packing::kExact, 9000, 4, 0, 2048};
  const KeyPair& keys = key_pair(request);
  Aggregator aggregator(keys.public_key, {}, 1);
  const std::size_t clients = 8300;
  for (std::size_t client = 0; client < clients; ++client) {
    Frame batch = tests::encrypt(keys, Values(5, client % 2 == 0 ? 7.0 : -3.0), seeds);
    if (client > 8185 && client < 8196) {
      Frame damaged = batch;
      damaged[damaged.size() - 100] ^= 1;
      CHECK_THROWS((aggregator.add(damaged), 0), ErrorCode::kWireFormat);
    }
    aggregator.add(batch);
  }
  for (const double value : tests::open(keys, tests::total_of(aggregator)).values) {
    CHECK(value == 4.0 * static_cast<double>(clients / 2));
  }
}

}  // namespace ckks_undo_tests
