// Sessions of several authorities: all have to answer, and for one list.
#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kahe/frame_secret.h"
#include "ring/bit_packing.h"
#include "tests/check.h"
#include "tests/enrolled/altered_totals.h"
#include "tests/enrolled/enrolled_cases.h"

namespace enrolled_authorities_tests {

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

// The numbers in an answer.
std::vector<std::int64_t> numbers_of(const kahe::SumKey& answer) {
  return {answer.coefficients().begin(), answer.coefficients().end()};
}
std::vector<std::int64_t> numbers_of(const pads::SumKey& answer) {
  std::vector<std::uint64_t> words(answer.head().count);
  ring::unpack_residues(answer.packed(), {answer.head().unit, 0}, words);
  return {words.begin(), words.end()};
}

// An answer of such a head with other numbers.
template <typename SumKey>
SumKey with_numbers(const SumKeyHead& head, std::span<const std::int64_t> numbers) {
  constexpr bool kIsKahe = std::is_same_v<SumKey, kahe::SumKey>;
  const std::int64_t largest = kIsKahe ? kahe::kMaxSample * static_cast<std::int64_t>(head.clients) : 0;
  const unsigned bits =
      kIsKahe ? static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(2 * largest))) : head.unit;
  std::vector<std::uint64_t> fields;
  for (const std::int64_t number : numbers) {
    fields.push_back(static_cast<std::uint64_t>(number + largest) & ((std::uint64_t{1} << bits) - 1));
  }
  const std::size_t packed = ring::packed_bytes(fields.size(), bits);
  FrameWriter writer(
      {kIsKahe ? FrameKind::kKaheSumKey : FrameKind::kPadsSumKey, head.parameter_id, head.key_id},
      SumKeyHead::kBytes + packed);
  head.put(writer);
  ring::pack_residues(fields, {bits, 0}, writer.reserve(packed));
  return SumKey::from_frame(writer.finish());
}

// What is added of the answers for the first list and for the second, by authority: 1, 0 or -1 times each.
using Signs = std::array<std::array<int, 2>, 2>;

// Two authorities' answers for two lists of five clients each, which differ by one; what somebody who has all
// of them can forge.
template <typename Types>
struct TwoLists {
  using Session = EnrolledSession<Types>;
  using View = typename Session::View;
  using SumKey = typename Types::SumKey;

  TwoLists() : session(tests::small_request<Types>(kClients), kClients, 1, 2) {
    std::mt19937_64 generator(3);
    InsecureTestRandom seeds(3);
    std::vector<Frame> batches;
    for (std::uint32_t client = 0; client < kClients; ++client) {
      Values own(session.facts().values_per_block());
      for (double& value : own) value = static_cast<double>(generator() % 2048) / 1024 - 1;
      batches.push_back(encrypt(session, client, own, seeds));
      values.push_back(std::move(own));
    }
    totals.push_back(tests::total_of(session, {batches.begin(), batches.end() - 1}));
    totals.push_back(tests::total_of(session, {batches.begin() + 1, batches.end()}));
    const View other = View::parse(totals[1], Session::Scheme::kKinds.total);
    std::vector<std::uint64_t> less(other.format.words());
    totals.push_back(tests::with_words(View::parse(totals[0], other.kind),
                                       [&](std::span<std::uint64_t> words, std::size_t block) {
                                         const std::uint64_t modulus = other.format.rows().at(0).modulus;
                                         other.format.unpack(other.block(block), less);
                                         for (std::size_t i = 0; i < words.size(); ++i)
                                           words[i] = (words[i] + modulus - less[i]) % modulus;
                                       }));
    for (std::size_t list = 0; list < 2; ++list) {
      for (std::size_t authority = 0; authority < 2; ++authority) {
        answers[list].push_back(answer(session, session.request_of(totals[list]), 1, authority));
      }
    }
  }

  // The answers added up, under a head that is right for the total.
  [[nodiscard]] SumKey forged(std::size_t total, const Signs& signs) const {
    SumKeyHead head = answers[total == 1 ? 1 : 0][0].head();
    head.total_digest = long_digest(totals[total]);
    std::vector<std::int64_t> sum(head.count);
    for (std::size_t list = 0; list < 2; ++list) {
      for (std::size_t authority = 0; authority < 2; ++authority) {
        const auto numbers = numbers_of(answers[list][authority]);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += signs[list][authority] * numbers[i];
      }
    }
    return with_numbers<SumKey>(head, sum);
  }
  [[nodiscard]] Values open(std::size_t total, const SumKey& sum_key) const {
    return tests::open(session, totals[total], sum_key).values;
  }

  [[nodiscard]] Values sum_of(std::size_t begin, std::size_t end) const {
    Values sum(values[0].size());
    for (std::size_t client = begin; client < end; ++client) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[client][i];
    }
    return sum;
  }

  Session session;
  std::vector<Values> values;  // by client
  std::vector<Frame> totals;   // of the first list, the second, and the first's less the second's
  std::array<std::vector<SumKey>, 2> answers;  // by list and authority
};

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
  const TwoLists<Types> lists;
  // How answers are forged is not what fails: of both authorities for one list, or for both lists, they open.
  CHECK(lists.open(0, lists.forged(0, {{{1, 1}, {0, 0}}})) == lists.sum_of(0, 5));
  CHECK(lists.open(1, lists.forged(1, {{{0, 0}, {1, 1}}})) == lists.sum_of(1, 6));
  Values difference = lists.values[0];
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= lists.values[5][i];
  CHECK(lists.open(2, lists.forged(2, {{{1, 1}, {-1, -1}}})) == difference);
  // Each authority was given another list.
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
    for (const int of_first : {-1, 0, 1}) {
      for (const int of_second : {-1, 0, 1}) {
        Signs signs{};
        signs[first][0] = of_first;
        signs[1 - first][1] = of_second;
        for (std::size_t total = 0; total < lists.totals.size(); ++total) {
          const auto forged = lists.forged(total, signs);
          CHECK_THROWS(lists.open(total, forged), ErrorCode::kWireFormat);
        }
      }
    }
  }
}

}  // namespace enrolled_authorities_tests
