// A frame that turns out damaged while it is being added leaves the sum, and the list of who is in it, as
// they were.
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/check.h"
#include "tests/enrolled/enrolled_cases.h"
#include "tests/packed/damaged_frames.h"

namespace enrolled_undo_tests {

using namespace shieldfl;
using tests::EnrolledSession;
using tests::Frame;
using tests::Values;

namespace {

template <typename Types>
std::vector<typename Types::ParameterRequest> requests();
template <>
std::vector<kahe::ParameterRequest> requests<tests::KaheTypes>() {
  return {{6, 24, 20, 2048}, {6, 24, 20, 4096}, {6, 24, 20, 8192}};
}
template <>
std::vector<pads::ParameterRequest> requests<tests::PadsTypes>() {
  return {{6, 24, 20}, {6, 38, 20}};
}
constexpr std::size_t kThreads[] = {1, 2, 5};

template <typename Types>
Frame batch_of(const EnrolledSession<Types>& session, std::uint32_t client, std::size_t blocks,
               SeedSource& seeds) {
  return tests::encrypt(session, client, Values(blocks * session.facts().values_per_block() - 3, 0.5), seeds);
}

template <typename Types>
void check_undone(const EnrolledSession<Types>& session, std::size_t threads) {
  InsecureTestRandom seeds(threads);
  const std::size_t blocks = 7;
  const Frame first = batch_of(session, 2, blocks, seeds);
  const Frame second = batch_of(session, 0, blocks, seeds);
  const Frame third = batch_of(session, 5, blocks, seeds);
  const Frame subtotal = tests::total_of(session, {second, third});
  const Frame expected = tests::total_of(session, {first});
  // Nothing comes before the damaged frame, a batch, or a total.
  using Aggregator = typename EnrolledSession<Types>::Aggregator;
  using View = typename EnrolledSession<Types>::View;
  Aggregator empty(session.key, tests::kUpdate, 0, {}, threads);
  Aggregator aggregator(session.key, tests::kUpdate, 0, {}, threads);
  aggregator.add(first);
  const auto refuses = [&](const std::function<void(Aggregator&)>& add) {
    for (Aggregator* target : {&empty, &aggregator}) {
      CHECK_THROWS((add(*target), 0), ErrorCode::kWireFormat);
    }
    CHECK(empty.clients() == 0 && !empty.round() && aggregator.clients() == 1);
    CHECK(tests::total_of(aggregator) == expected);
  };
  for (const Frame& frame : tests::damaged(View::parse(second, View::Scheme::kKinds.batch))) {
    refuses([&](Aggregator& target) { target.add(frame); });
  }
  for (const Frame& frame : tests::damaged(View::parse(subtotal, View::Scheme::kKinds.total))) {
    refuses([&](Aggregator& target) { target.add_total(frame); });
  }
  CHECK_THROWS(tests::total_of(empty), ErrorCode::kParameter);

  // Both go on as if nothing had happened, with the clients whose frames were refused: the empty one also
  // with other positions.
  aggregator.add_total(subtotal);
  CHECK(tests::total_of(aggregator) == tests::total_of(session, {first, second, third}));
  const Frame shorter = batch_of(session, 0, blocks - 2, seeds);
  empty.add(shorter);
  CHECK(tests::total_of(empty) == tests::total_of(session, {shorter}));
  CHECK_THROWS((empty.add(first), 0), ErrorCode::kParameter);
}

}  // namespace

TEST_OF_BOTH(a_damaged_frame_is_taken_out_of_the_sum_again) {
  for (const auto& request : requests<Types>()) {
    const EnrolledSession<Types> session(request, request.max_clients);
    for (const std::size_t threads : kThreads) check_undone(session, threads);
  }
}

TEST(a_parsed_head_does_not_vouch_for_residues) {
  InsecureTestRandom seeds(7);
  const EnrolledSession<tests::KaheTypes> session(requests<tests::KaheTypes>()[1], 2);
  const Frame good = batch_of(session, 1, 2, seeds);
  const kahe::CiphertextView view = kahe::CiphertextView::parse(good, FrameKind::kKaheBatch);
  const Frame bad = tests::with_packed(view, {1, 1, 5}, ~std::uint64_t{0});
  kahe::Aggregator aggregator(session.key, tests::kUpdate, 0, {}, 2);
  aggregator.add(batch_of(session, 0, 2, seeds));
  const Frame before = tests::total_of(aggregator);
  CHECK_THROWS((aggregator.add(kahe::CiphertextView::parse_head(bad, FrameKind::kKaheBatch)), 0),
               ErrorCode::kWireFormat);
  CHECK(tests::total_of(aggregator) == before);
  aggregator.add(view);
  CHECK(aggregator.clients() == 2);
}

TEST_OF_BOTH(what_an_aggregator_refuses_leaves_the_sum_as_it_was) {
  InsecureTestRandom seeds(8);
  const auto both = requests<Types>();
  const EnrolledSession<Types> session(both[0], 8);
  const std::size_t size = session.facts().values_per_block();
  const Values values(size, 0.25);
  typename EnrolledSession<Types>::Aggregator aggregator(session.key, tests::kUpdate, 0, {}, 1);
  aggregator.add(batch_of(session, 0, 1, seeds));
  const Frame before = tests::total_of(aggregator);
  const auto refuses = [&](const Frame& frame, ErrorCode code) {
    CHECK_THROWS((aggregator.add(frame), 0), code);
    CHECK(tests::total_of(aggregator) == before);
  };
  const Values same(size - 3, 0.5);
  refuses(tests::encrypt(session, 1, values, seeds), ErrorCode::kParameter);  // other positions
  refuses(tests::encrypt(session, 1, same, seeds, 1), ErrorCode::kPolicy);    // another round
  refuses(tests::encrypt(session, 1, same, seeds, 0, {.purpose = {8}}), ErrorCode::kPolicy);
  refuses(tests::encrypt(session, 1, same, seeds, 0, {.purpose = tests::kUpdate, .part = 1}),
          ErrorCode::kPolicy);
  refuses(tests::encrypt(session, 0, same, seeds), ErrorCode::kDuplicateFrame);  // the same client
  refuses(tests::encrypt(EnrolledSession<Types>(both[0], 2, 9), 1, same, seeds), ErrorCode::kKeyMismatch);
  refuses(tests::encrypt(EnrolledSession<Types>(both[1], 2), 1, same, seeds), ErrorCode::kParameter);
  refuses(before, ErrorCode::kWireFormat);  // a total
  // A frame of another round that is damaged as well is damaged first of all.
  Frame damaged = tests::encrypt(session, 1, same, seeds, 1);
  damaged.back() ^= 1;
  refuses(damaged, ErrorCode::kWireFormat);
  std::vector<Frame> rest;
  for (std::uint32_t client = 1; client < session.facts().max_clients; ++client) {
    rest.push_back(batch_of(session, client, 1, seeds));
  }
  aggregator.add_total(tests::total_of(session, rest));
  const Frame full = tests::total_of(aggregator);
  CHECK_THROWS((aggregator.add(batch_of(session, 7, 1, seeds)), 0), ErrorCode::kCapacity);
  CHECK(tests::total_of(aggregator) == full);
}

}  // namespace enrolled_undo_tests
