// Sessions of several authorities: all have to answer, and for one list.
#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "tests/check.h"
#include "tests/enrolled/enrolled_cases.h"

using namespace shieldfl;
using namespace shieldfl::enrolled;
using tests::EnrolledSession;
using tests::Frame;
using tests::Values;

namespace {

constexpr std::uint32_t kClients = 6;

template <typename Types>
typename Types::ParameterRequest request_for(std::uint32_t clients) {
  return {clients, 24, 20};
}

}  // namespace

TEST_OF_BOTH(each_of_several_authorities_has_to_answer_and_for_one_list) {
  for (const std::size_t authorities : {std::size_t{2}, std::size_t{3}}) {
    const EnrolledSession<Types> session(request_for<Types>(kClients), kClients, 1, authorities);
    std::mt19937_64 generator(authorities);
    InsecureTestRandom seeds(authorities);
    std::vector<Frame> batches;
    Values sums(session.facts().values_per_block() + 3, 0.0);
    for (std::uint32_t client = 0; client < kClients; ++client) {
      Values values(sums.size());
      for (double& value : values) value = static_cast<double>(generator() % 2048) / 1024 - 1;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
      batches.push_back(encrypt(session, client, values, seeds, 2));
    }
    const Frame total = tests::total_of(session, batches);
    CHECK(tests::open(session, total).values == sums);
    std::vector<typename Types::SumKey> keys;
    for (std::size_t one = 0; one < authorities; ++one) {
      keys.push_back(answer(session, session.request_of(total), 2, one));
    }
    const auto opens = [&](std::span<const typename Types::SumKey> given) {
      return tests::open(session, total, given);
    };
    // One that does not answer, or is asked twice in another's place.
    CHECK_THROWS(opens(std::span(keys).first(authorities - 1)), ErrorCode::kWireFormat);
    CHECK_THROWS(opens(std::span(keys).first(0)), ErrorCode::kParameter);
    auto twice = keys;
    twice.back() = twice.front();
    CHECK_THROWS(opens(twice), ErrorCode::kWireFormat);
    // Two that were given different lists: no total is for both.
    const Frame fewer = tests::total_of(session, {batches.begin() + 1, batches.end()});
    auto split = keys;
    split.back() = answer(session, session.request_of(fewer), 2, authorities - 1);
    CHECK_THROWS(opens(split), ErrorCode::kKeyMismatch);
    CHECK_THROWS(tests::open(session, fewer, std::span<const typename Types::SumKey>(split)),
                 ErrorCode::kKeyMismatch);
    auto more = keys;
    more.resize(enrolled::kMaxAuthorities + 1, keys.front());
    CHECK_THROWS(opens(more), ErrorCode::kParameter);
  }
}

TEST_OF_BOTH(nothing_is_encrypted_under_the_keys_of_more_authorities_than_can_answer) {
  const EnrolledSession<Types> session(request_for<Types>(2), 2, 1, kMaxAuthorities + 1);
  InsecureTestRandom seeds(1);
  CHECK_THROWS(encrypt(session, 0, Values(3, 0.5), seeds, 1), ErrorCode::kParameter);
}

TEST_OF_BOTH(two_lists_at_two_authorities_tell_neither_a_client_s_update) {
  // What two authorities would give for two lists that differ by one client, with their heads set aright by
  // whoever has both answers: the difference of lists hides behind the honest one's secret.
  const EnrolledSession<Types> session(request_for<Types>(kClients), kClients, 1, 2);
  InsecureTestRandom seeds(3);
  std::vector<Frame> batches;
  for (std::uint32_t client = 0; client < kClients; ++client) {
    batches.push_back(encrypt(session, client, Values(session.facts().values_per_block(), 0.25), seeds));
  }
  const Frame all = tests::total_of(session, batches);
  const Frame fewer = tests::total_of(session, {batches.begin() + 1, batches.end()});
  const auto first = answer(session, session.request_of(all), 1, 0);
  const auto second = answer(session, session.request_of(fewer), 1, 1);
  // The second's numbers under the head of an answer for the first's list.
  auto frame = second.to_frame();
  const auto head = first.to_frame();
  constexpr std::size_t kSum = kFrameHeaderBytes + 16;
  std::copy_n(head.begin() + kSum, 2 * sizeof(Digest), frame.begin() + kSum);
  Frame forged(frame.begin(), frame.end());
  if (forged.size() == head.size()) {  // as long: the same bits for a number of both lists
    std::copy_n(head.begin() + kFrameHeaderBytes, 4, forged.begin() + kFrameHeaderBytes);
    tests::reseal(forged);
    const std::vector<typename Types::SumKey> keys = {first, Types::SumKey::from_frame(forged)};
    CHECK_THROWS(tests::open(session, all, std::span<const typename Types::SumKey>(keys)),
                 ErrorCode::kWireFormat);
  } else {
    CHECK((std::is_same_v<Types, tests::KaheTypes>));
  }
}
