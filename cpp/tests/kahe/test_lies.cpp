// An aggregator that lies gets noise, which is refused, or an error: never a sum that it chose.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "tests/check.h"
#include "tests/kahe/kahe_cases.h"
#include "tests/mask/mask_cases.h"

using namespace shieldfl;
using namespace shieldfl::kahe;
using tests::Frame;
using tests::Session;
using tests::Values;

namespace {

constexpr std::uint32_t kClients = 6;

// As many clients as the parameters have room for, where a check of ranges alone would notice the least.
const ParameterRequest kRequest = {kClients, 24, 20, 2048};

struct Round {
  explicit Round(std::uint64_t number = 2, std::size_t blocks = 3)
      : session(kRequest, kClients + 2), seeds(number) {
    std::mt19937_64 generator(number);
    for (std::uint32_t client = 0; client < kClients; ++client) {
      const Values values =
          tests::random_values(session.facts(), blocks * session.facts().values_per_block(), generator);
      batches.push_back(encrypt(session, client, values, seeds, number));
    }
    total = tests::total_of(session, batches);
  }

  [[nodiscard]] CiphertextView view() const { return CiphertextView::parse(total, FrameKind::kKaheTotal); }

  Session session;
  InsecureTestRandom seeds;
  std::vector<Frame> batches;
  Frame total;
};

// A total with another head than it was summed with, so that only the secrets can tell.
Frame with_head(const CiphertextView& total, const std::function<void(FrameHead&)>& change) {
  FrameHead head = total.head;
  change(head);
  Frame frame(ciphertext_frame_bytes(FrameKind::kKaheTotal, head));
  FrameWriter writer = begin_frame(FrameKind::kKaheTotal, head, frame);
  writer.put_bytes(total.payload);
  writer.finish();
  return frame;
}

// A total with other ciphertexts.
Frame with_payload(const CiphertextView& total, const std::function<void(std::span<std::uint8_t>)>& change) {
  Frame frame(total.frame.begin(), total.frame.end());
  const auto at = static_cast<std::size_t>(total.payload.data() - total.frame.data());
  change(std::span(frame).subspan(at, total.payload.size()));
  tests::reseal(frame);
  return frame;
}

void check_noise(const Session& session, const Frame& total) {
  CHECK_THROWS(tests::open(session, total), ErrorCode::kWireFormat);
}

}  // namespace

TEST(an_honest_total_opens_and_a_relabelled_one_does_not) {
  const Round round;
  CHECK(!tests::open(round.session, round.total).values.empty());
  const CiphertextView view = round.view();
  check_noise(round.session, with_head(view, [](FrameHead& head) { head.layout.round = 3; }));
  check_noise(round.session, with_head(view, [](FrameHead& head) { head.layout.mask_id[0] ^= 1; }));
  check_noise(round.session, with_head(view, [](FrameHead& head) {
                head.layout.weighted = true;
                head.layout.value_count -= 1;
              }));
  check_noise(round.session, with_head(view, [](FrameHead& head) { head.layout.value_count -= 1; }));
  check_noise(round.session, with_head(view, [](FrameHead& head) { head.purpose[0] ^= 1; }));
  check_noise(round.session, with_head(view, [](FrameHead& head) { head.part = 1; }));
  // Another session's, by its keys or by its label.
  const Session other(kRequest, kClients + 2, 9);
  CHECK_THROWS(tests::open(other, round.total), ErrorCode::kKeyMismatch);
  check_noise(other, with_head(view, [&](FrameHead& head) { head.layout.key_id = other.key->id(); }));
}

TEST(ten_thousand_lies_about_the_list_of_participants_open_nothing) {
  const Round round;
  const CiphertextView view = round.view();
  std::mt19937_64 generator(11);
  int lies = 0;
  while (lies < 10'000) {
    bool empty = false;
    const Frame lie = with_head(view, [&](FrameHead& head) {
      // Some of the true clients, some others, with true frame ids, others' or new ones.
      std::vector<Participant> list;
      for (std::uint32_t client = 0; client < kClients + 2; ++client) {
        if (generator() % 5 == 0) continue;
        Participant one{client, head.participants[client % kClients].frame_id};
        if (generator() % 6 == 0) one.frame_id = head.participants[generator() % kClients].frame_id;
        if (generator() % 6 == 0)
          one.frame_id[generator() % 16] ^= static_cast<std::uint8_t>(1 + generator() % 255);
        list.push_back(one);
      }
      std::shuffle(list.begin(), list.end(), generator);
      list.resize(std::min<std::size_t>(list.size(), kClients));
      std::ranges::sort(list);
      empty = list.empty();
      head.participants = list;
    });
    if (empty || lie == round.total) continue;
    check_noise(round.session, lie);
    ++lies;
  }
}

TEST(a_frame_id_of_two_clients_is_refused) {
  const Round round;
  const Frame lie = with_head(
      round.view(), [](FrameHead& head) { head.participants[3].frame_id = head.participants[1].frame_id; });
  CHECK_THROWS(CiphertextView::parse_head(lie, FrameKind::kKaheTotal), ErrorCode::kWireFormat);
}

TEST(ciphertexts_that_are_invented_copied_multiplied_or_pasted_open_nothing) {
  const Round round;
  const CiphertextView view = round.view();
  const std::size_t block = view.format.bytes();
  const auto altered = [&](const std::function<void(std::span<std::uint64_t>, std::size_t)>& change) {
    std::vector<std::uint64_t> digits(view.format.words());
    return with_payload(view, [&](std::span<std::uint8_t> payload) {
      for (std::size_t at = 0; at * block < payload.size(); ++at) {
        const auto bytes = payload.subspan(at * block, block);
        view.format.unpack(bytes, digits);
        change(digits, at);
        view.format.pack(digits, bytes);
      }
    });
  };
  const std::uint64_t q = view.head.facts.primes[0];
  // Doubled, and with one client's frame once more, or once less in one ciphertext alone.
  check_noise(round.session, altered([&](auto digits, std::size_t) {
                for (std::uint64_t& digit : digits) digit = 2 * digit % q;
              }));
  const CiphertextView one = CiphertextView::parse(round.batches[0], FrameKind::kKaheBatch);
  for (const bool more : {true, false}) {
    check_noise(round.session, altered([&](auto digits, std::size_t at) {
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
  check_noise(round.session, altered([&](auto digits, std::size_t) {
                for (std::uint64_t& digit : digits) digit = (digit + q / 3) % q;
              }));
}

TEST(a_single_client_s_batch_is_not_a_total) {
  const Round round;
  const auto view = CiphertextView::parse(round.batches[0], FrameKind::kKaheBatch);
  const SumKey sum_key = tests::answer(round.session, tests::request_of(round.total));
  CHECK_THROWS(kahe::open(*round.session.key, view, long_digest(round.total), sum_key, 1),
               ErrorCode::kPolicy);
}

TEST(an_answer_opens_the_total_that_was_asked_for_alone) {
  const Round round;
  const SumKey sum_key = tests::answer(round.session, tests::request_of(round.total));
  // One that was changed after the answer, in a value: it would open, to what the aggregator likes.
  const CiphertextView view = round.view();
  const Frame changed = with_payload(view, [&](std::span<std::uint8_t> payload) {
    std::vector<std::uint64_t> digits(view.format.words());
    const auto bytes = payload.first(view.format.bytes());
    view.format.unpack(bytes, digits);
    digits[0] = (digits[0] + (std::uint64_t{1} << view.head.facts.log2_scale)) % view.head.facts.primes[0];
    view.format.pack(digits, bytes);
  });
  CHECK_THROWS(tests::open(round.session, changed, sum_key), ErrorCode::kKeyMismatch);
  // Without the digest it does: this is what the digest is for.
  const OpenedSums forged =
      kahe::open(*round.session.key, CiphertextView::parse(changed, FrameKind::kKaheTotal),
                 long_digest(round.total), sum_key, 1);
  CHECK(forged.values[0] != tests::open(round.session, round.total, sum_key).values[0]);
  // Of another list, or of another round.
  const Frame fewer = tests::total_of(round.session, {round.batches[0], round.batches[1], round.batches[2]});
  CHECK_THROWS(tests::open(round.session, fewer, sum_key), ErrorCode::kKeyMismatch);
  const Round later(3);
  CHECK_THROWS(tests::open(later.session, later.total, sum_key), ErrorCode::kKeyMismatch);
}

TEST(two_answers_for_overlapping_lists_give_a_client_s_update) {
  // Why an authority answers once for each client, session, round and purpose: S - S' is one client's secret.
  const Round round;
  const SumKey all = tests::answer(round.session, tests::request_of(round.total));
  std::vector<Frame> fewer(round.batches.begin() + 1, round.batches.end());
  const Frame rest = tests::total_of(round.session, fewer);
  const SumKey others = tests::answer(round.session, tests::request_of(rest));
  const auto everything = tests::open(round.session, round.total, all).values;
  const auto without = tests::open(round.session, rest, others).values;
  const Frame alone = tests::total_of(round.session, {round.batches[0]});
  const auto own = tests::open(round.session, alone).values;
  for (std::size_t i = 0; i < own.size(); ++i) CHECK(everything[i] - without[i] == own[i]);
}

TEST(keys_go_on_with_the_rounds_and_never_back) {
  const Session session(kRequest, 1);
  ClientKey key = session.keys[0];
  key.advance_to(5);
  CHECK(key.round() == 5 && key.secret().bytes != session.keys[0].secret().bytes);
  const Seed fifth = key.secret();
  CHECK_THROWS((key.advance_to(4), 0), ErrorCode::kPolicy);
  CHECK_THROWS((key.advance_to(6 + ClientKey::kMostRoundsAhead), 0), ErrorCode::kPolicy);
  CHECK(key.round() == 5 && key.secret().bytes == fifth.bytes);
  ClientKey by_steps = session.keys[0];
  for (std::uint64_t round = 1; round <= 5; ++round) by_steps.advance_to(round);
  CHECK(by_steps.secret().bytes == fifth.bytes);
  key.advance_to(5 + ClientKey::kMostRoundsAhead);
}

TEST(a_sum_key_takes_the_participants_own_keys) {
  const Round round;
  const SumRequest request = tests::request_of(round.total);
  std::vector<ClientKey> keys = round.session.keys_for(request);
  const auto make = [&] { return SumKey::of_request(*round.session.key, request, keys, 1); };
  make();
  std::swap(keys[0], keys[1]);
  CHECK_THROWS(make(), ErrorCode::kKeyMismatch);
  std::swap(keys[0], keys[1]);
  keys[3].advance_to(3);
  CHECK_THROWS(make(), ErrorCode::kKeyMismatch);
  keys.pop_back();
  CHECK_THROWS(make(), ErrorCode::kParameter);
}
