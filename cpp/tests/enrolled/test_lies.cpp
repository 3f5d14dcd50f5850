// An aggregator that lies gets noise, which is refused, or an error: never a sum that it chose.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "common/cpu_features.h"
#include "tests/check.h"
#include "tests/enrolled/altered_totals.h"
#include "tests/enrolled/enrolled_cases.h"
#include "tests/mask/mask_cases.h"

namespace enrolled_lies_tests {

using namespace shieldfl;
using namespace shieldfl::enrolled;
using tests::EnrolledSession;
using tests::Frame;
using tests::Values;
using tests::with_head;
using tests::with_payload;
using tests::with_words;

namespace {

constexpr std::uint32_t kClients = 6;

// A tenth of them where the process has chosen less than the machine's best instruction set: whether a lie
// opens is arithmetic, of which the kernels of all sets are held to give the same numbers.
int lies_to_try(int all) {
  return tests::trials(instruction_set() == best_instruction_set() ? all : all / 10);
}

// As many clients as the parameters have room for, where a check of ranges alone would notice the least.
template <typename Types>
struct Round {
  using Session = EnrolledSession<Types>;
  using View = typename Session::View;
  using Head = typename Session::Head;
  using SumKey = typename Types::SumKey;

  explicit Round(std::uint64_t number = 2, std::size_t blocks = 3, std::uint32_t clients = kClients,
                 std::uint32_t max_clients = kClients)
      : session(tests::small_request<Types>(max_clients), clients + 2), seeds(number) {
    std::mt19937_64 generator(number);
    for (std::uint32_t client = 0; client < clients; ++client) {
      const Values values =
          tests::random_values(session.facts(), blocks * session.facts().values_per_block(), generator);
      batches.push_back(encrypt(session, client, values, seeds, number));
    }
    total = tests::total_of(session, batches);
  }

  [[nodiscard]] View view() const { return View::parse(total, Session::Scheme::kKinds.total); }

  Session session;
  InsecureTestRandom seeds;
  std::vector<Frame> batches;
  Frame total;
};

template <typename Types>
void check_noise(const EnrolledSession<Types>& session, const Frame& total) {
  CHECK_THROWS(tests::open(session, total), ErrorCode::kWireFormat);
}

// Total and list are those of an honest round: it opens. Then as many lies about the list as this.
template <typename Types>
void check_lies(const Round<Types>& round, int wanted) {
  CHECK(!tests::open(round.session, round.total).values.empty());
  const auto view = round.view();
  const auto clients = static_cast<std::uint32_t>(view.head.participants.size());
  std::mt19937_64 generator(11);
  for (int lies = 0; lies < wanted;) {
    bool reads = false;  // with another frame id for each, or it would be refused before it is opened
    const Frame lie = with_head(view, [&](auto& head) {
      // Some of the true clients, some others, with true frame ids, others' or new ones. Every other lie is
      // about one client alone.
      const bool is_small = generator() % 2 == 0;
      const std::uint64_t change = is_small ? generator() % clients : clients;
      std::vector<Participant> list;
      for (std::uint32_t client = 0; client < clients + 2; ++client) {
        if (is_small && client != change) {
          if (client < clients) list.push_back(head.participants[client]);
          continue;
        }
        if (generator() % 5 == 0) continue;
        Participant one{client, head.participants[client % clients].frame_id};
        if (generator() % 6 == 0) one.frame_id = head.participants[generator() % clients].frame_id;
        if (generator() % 6 == 0)
          one.frame_id[generator() % 16] ^= static_cast<std::uint8_t>(1 + generator() % 255);
        list.push_back(one);
      }
      std::shuffle(list.begin(), list.end(), generator);
      list.resize(std::min<std::size_t>(list.size(), head.facts.max_clients));
      std::ranges::sort(list);
      std::set<Id> ids;
      for (const Participant& one : list) ids.insert(one.frame_id);
      reads = !list.empty() && ids.size() == list.size();
      head.participants = list;
    });
    if (!reads || lie == round.total) continue;
    CHECK(Round<Types>::View::parse(lie, view.kind).head.participants != view.head.participants);
    check_noise(round.session, lie);
    ++lies;
  }
}

// What adds one to the first value of a ciphertext.
std::uint64_t one_more(const kahe::ParameterFacts& facts) {
  return std::uint64_t{1} << facts.log2_scale;
}
std::uint64_t one_more(const pads::ParameterFacts&) {
  return 1;
}

}  // namespace

TEST_OF_BOTH(an_honest_total_opens_and_a_relabelled_one_does_not) {
  const Round<Types> round;
  CHECK(!tests::open(round.session, round.total).values.empty());
  const auto view = round.view();
  check_noise(round.session, with_head(view, [](auto& head) { head.layout.round = 3; }));
  check_noise(round.session, with_head(view, [](auto& head) { head.layout.mask_id[0] ^= 1; }));
  check_noise(round.session, with_head(view, [](auto& head) {
                head.layout.weighted = true;
                head.layout.value_count -= 1;
              }));
  check_noise(round.session, with_head(view, [](auto& head) { head.layout.value_count -= 1; }));
  check_noise(round.session, with_head(view, [](auto& head) { head.purpose[0] ^= 1; }));
  check_noise(round.session, with_head(view, [](auto& head) { head.part = 1; }));
  // Another session's, by its keys or by its label.
  const EnrolledSession<Types> other(tests::small_request<Types>(kClients), kClients + 2, 9);
  CHECK_THROWS(tests::open(other, round.total), ErrorCode::kKeyMismatch);
  check_noise(other, with_head(view, [&](auto& head) { head.layout.key_id = other.key->id(); }));
}

TEST_OF_BOTH(lies_about_the_list_of_participants_open_nothing) {
  check_lies(Round<Types>(), lies_to_try(10'000));
}

TEST_OF_BOTH(nor_do_they_where_there_is_room_for_more_clients) {
  check_lies(Round<Types>(2, 1, kClients / 2), lies_to_try(10'000));
}

TEST_OF_BOTH(nor_do_they_in_a_round_of_many) {
  constexpr std::uint32_t kMany = 64;
  check_lies(Round<Types>(2, 1, kMany, kMany), lies_to_try(2'000));
}

TEST_OF_BOTH(a_frame_id_of_two_clients_is_refused) {
  const Round<Types> round;
  const Frame lie = with_head(
      round.view(), [](auto& head) { head.participants[3].frame_id = head.participants[1].frame_id; });
  using View = typename Round<Types>::View;
  CHECK_THROWS(View::parse_head(lie, View::Scheme::kKinds.total), ErrorCode::kWireFormat);
}

TEST_OF_BOTH(ciphertexts_that_are_invented_copied_multiplied_or_pasted_open_nothing) {
  const Round<Types> round;
  const auto view = round.view();
  const std::size_t block = view.format.bytes();
  const std::uint64_t q = view.format.rows()[0].modulus;
  // Doubled, and with one client's frame once more, or once less in one ciphertext alone.
  check_noise(round.session, with_words(view, [&](auto digits, std::size_t) {
                for (std::uint64_t& digit : digits) digit = 2 * digit % q;
              }));
  const auto one = Round<Types>::View::parse(round.batches[0], Round<Types>::Session::Scheme::kKinds.batch);
  for (const bool more : {true, false}) {
    check_noise(round.session, with_words(view, [&](auto digits, std::size_t at) {
                  if (at != 1) return;
                  std::vector<std::uint64_t> own(digits.size());
                  one.format.unpack(one.block(at), own);
                  for (std::size_t i = 0; i < own.size(); ++i)
                    digits[i] = (digits[i] + (more ? own[i] % q : q - own[i] % q)) % q;
                }));
  }
  // Two ciphertexts change places; a constant is added to all.
  check_noise(round.session, with_payload(view, [&](std::span<std::uint8_t> payload) {
                std::swap_ranges(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(block),
                                 payload.begin() + static_cast<std::ptrdiff_t>(block));
              }));
  check_noise(round.session, with_words(view, [&](auto digits, std::size_t) {
                for (std::uint64_t& digit : digits) digit = (digit + q / 3) % q;
              }));
}

TEST_OF_BOTH(a_single_client_s_batch_is_not_a_total) {
  const Round<Types> round;
  const auto view = Round<Types>::View::parse(round.batches[0], Round<Types>::Session::Scheme::kKinds.batch);
  const typename Types::SumKey sum_key = tests::answer(round.session, round.session.request_of(round.total));
  CHECK_THROWS(open(*round.session.key, view, long_digest(round.total), std::span(&sum_key, 1), 1),
               ErrorCode::kPolicy);
  CHECK_THROWS(Round<Types>::Session::Request::of_total(view, long_digest(round.batches[0])),
               ErrorCode::kPolicy);
}

TEST_OF_BOTH(an_answer_opens_the_total_that_was_asked_for_alone) {
  const Round<Types> round;
  const typename Types::SumKey sum_key = tests::answer(round.session, round.session.request_of(round.total));
  // One that was changed after the answer, in a value: it would open, to what the aggregator likes.
  const auto view = round.view();
  const Frame changed = with_words(view, [&](auto digits, std::size_t block) {
    if (block == 0) digits[0] = (digits[0] + one_more(view.head.facts)) % view.format.rows()[0].modulus;
  });
  CHECK_THROWS(tests::open(round.session, changed, sum_key), ErrorCode::kKeyMismatch);
  // Without the digest it does: this is what the digest is for.
  const auto forged = open(*round.session.key, Round<Types>::View::parse(changed, view.kind),
                           long_digest(round.total), std::span(&sum_key, 1), 1);
  CHECK(forged.values[0] != tests::open(round.session, round.total, sum_key).values[0]);
  // Of another list, or of another round.
  const Frame fewer = tests::total_of(round.session, {round.batches[0], round.batches[1], round.batches[2]});
  CHECK_THROWS(tests::open(round.session, fewer, sum_key), ErrorCode::kKeyMismatch);
  const Round<Types> later(3);
  CHECK_THROWS(tests::open(later.session, later.total, sum_key), ErrorCode::kKeyMismatch);
}

TEST_OF_BOTH(two_answers_for_overlapping_lists_give_a_client_s_update) {
  // Why an authority answers once for each client, session, round and purpose: S - S' is one client's secret.
  const Round<Types> round;
  const typename Types::SumKey all = tests::answer(round.session, round.session.request_of(round.total));
  std::vector<Frame> fewer(round.batches.begin() + 1, round.batches.end());
  const Frame rest = tests::total_of(round.session, fewer);
  const typename Types::SumKey others = tests::answer(round.session, round.session.request_of(rest));
  const auto everything = tests::open(round.session, round.total, all).values;
  const auto without = tests::open(round.session, rest, others).values;
  const Frame alone = tests::total_of(round.session, {round.batches[0]});
  const auto own = tests::open(round.session, alone).values;
  for (std::size_t i = 0; i < own.size(); ++i) CHECK(everything[i] - without[i] == own[i]);
}

TEST_OF_BOTH(keys_go_on_with_the_rounds_and_never_back) {
  const EnrolledSession<Types> session(tests::small_request<Types>(kClients), 1);
  ClientKey key = session.keys_of[0][0];
  key.advance_to(5);
  CHECK(key.round() == 5 && key.secret().bytes != session.keys_of[0][0].secret().bytes);
  const Seed fifth = key.secret();
  CHECK_THROWS((key.advance_to(4), 0), ErrorCode::kPolicy);
  CHECK_THROWS((key.advance_to(6 + ClientKey::kMostRoundsAhead), 0), ErrorCode::kPolicy);
  CHECK(key.round() == 5 && key.secret().bytes == fifth.bytes);
  ClientKey by_steps = session.keys_of[0][0];
  for (std::uint64_t round = 1; round <= 5; ++round) by_steps.advance_to(round);
  CHECK(by_steps.secret().bytes == fifth.bytes);
  key.advance_to(5 + ClientKey::kMostRoundsAhead);
}

TEST_OF_BOTH(stored_keys_go_on_together_as_each_does_alone) {
  const EnrolledSession<Types> session(tests::small_request<Types>(kClients), 3);
  constexpr std::string_view kScheme = Types::PublicKey::Scheme::kName;
  std::vector<std::uint64_t> rounds;
  std::vector<std::uint64_t> clients;
  std::vector<std::uint8_t> secrets;
  std::vector<ClientKey> alone;
  for (const std::uint64_t stands : {0, 3, 7}) {
    ClientKey key = session.keys_of[0][rounds.size()];
    key.advance_to(stands);
    clients.push_back(key.client());
    rounds.push_back(stands);
    secrets.insert(secrets.end(), key.secret().bytes.begin(), key.secret().bytes.end());
    if (stands < 5) key.advance_to(5);
    alone.push_back(key);
  }
  const auto before = secrets;
  const std::uint64_t too_far = 1 + ClientKey::kMostRoundsAhead;
  CHECK_THROWS((enrolled::advance_all(kScheme, rounds, secrets, too_far), 0), ErrorCode::kPolicy);
  CHECK_THROWS((enrolled::advance_all(kScheme, std::span(rounds).first(2), secrets, 5), 0),
               ErrorCode::kParameter);
  CHECK(secrets == before && rounds[0] == 0);
  enrolled::advance_all(kScheme, rounds, secrets, 5);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(rounds[i] == alone[i].round());
    CHECK(std::equal(alone[i].secret().bytes.begin(), alone[i].secret().bytes.end(),
                     secrets.begin() + static_cast<std::ptrdiff_t>(i * kSeedBytes)));
  }
  const Id id = session.key->id();
  const std::vector<ClientKey> keys = enrolled::keys_of(kScheme, id, clients, rounds, secrets);
  CHECK(keys.size() == 3 && keys[1].client() == clients[1] && keys[1].round() == 5 && keys[2].round() == 7);
  CHECK(keys[1].key_id() == id && keys[1].secret().bytes == alone[1].secret().bytes);
  const auto two = std::span(clients).first(2);
  CHECK_THROWS(enrolled::keys_of(kScheme, id, two, rounds, secrets), ErrorCode::kParameter);
  CHECK_THROWS(enrolled::keys_of(kScheme, id, clients, std::span(rounds).first(2), secrets),
               ErrorCode::kParameter);
  clients[0] = std::uint64_t{1} << 32;
  CHECK_THROWS(enrolled::keys_of(kScheme, id, clients, rounds, secrets), ErrorCode::kParameter);
}

TEST_OF_BOTH(a_sum_key_takes_the_participants_own_keys) {
  const Round<Types> round;
  const auto request = round.session.request_of(round.total);
  std::vector<ClientKey> keys = round.session.keys_for(request);
  const auto make = [&] { return Types::SumKey::of_request(*round.session.key, request, keys, 1); };
  make();
  std::swap(keys[0], keys[1]);
  CHECK_THROWS(make(), ErrorCode::kKeyMismatch);
  std::swap(keys[0], keys[1]);
  keys[3].advance_to(3);
  CHECK_THROWS(make(), ErrorCode::kKeyMismatch);
  keys.pop_back();
  CHECK_THROWS(make(), ErrorCode::kParameter);
}

TEST_OF_BOTH(a_batch_is_added_for_who_sent_it) {
  const Round<Types> round;
  typename Round<Types>::Session::Aggregator aggregator(round.session.key, tests::kUpdate, 0, {}, 1);
  CHECK_THROWS((aggregator.add(round.batches[1], 2), 0), ErrorCode::kKeyMismatch);
  CHECK(aggregator.clients() == 0);
  aggregator.add(round.batches[1], 1);
  aggregator.add(round.batches[2], 2);
  CHECK(aggregator.clients() == 2);
}

}  // namespace enrolled_lies_tests
