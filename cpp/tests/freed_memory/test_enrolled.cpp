// Schemes in which clients enrol wipe what they work with: a client's keys, what follows from them, updates,
// sum keys.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "tests/check.h"
#include "tests/freed_memory/kahe_secrets.h"
#include "tests/freed_memory/pads_secrets.h"

using namespace shieldfl;
using namespace shieldfl::tests;
using enrolled::ClientKey;

namespace {

// Clients' keys and secrets, and their sum.
template <typename Types>
Secrets secrets_of(const EnrolledRound<Types>& round) {
  Secrets all;
  for (std::uint32_t client = 0; client < kClients; ++client) add_key(all, round.session, client);
  add_sum_of_secrets(all, round);
  const Frame frame = round.sum_key_frame(round.total);
  all.add("the numbers in a sum key's frame",
          std::span(frame).subspan(kFrameHeaderBytes + enrolled::SumKeyHead::kBytes));
  return all;
}

std::vector<std::int64_t> quantised(const Values& values, unsigned fraction_bits) {
  std::vector<std::int64_t> integers;
  for (const double value : values)
    integers.push_back(
        static_cast<std::int64_t>(std::nearbyint(std::ldexp(value, static_cast<int>(fraction_bits)))));
  return integers;
}

void check_nothing_found(const Secrets& secrets, const std::function<void()>& operation) {
  const auto found = secrets.found_in(remains_of(operation));
  std::string all;
  for (const std::string& one : found) all += "\n        " + one;
  if (!found.empty()) fail(__FILE__, __LINE__, "not wiped:" + all);
}

}  // namespace

TEST_OF_BOTH(what_is_not_wiped_is_found) {
  const EnrolledSession<Types> session(requests_for_memory<Types>().front(), 0);
  Secrets secrets;
  add_key(secrets, session, 1);
  const auto secret =
      add_frame_secret(secrets, session, 1, encrypted(session, 1, values_of(session, 1), nullptr));
  auto found = secrets.found_in(remains_of([&] {
    const auto on_the_heap(secret);
    std::array<std::uint8_t, 1 << 16> on_the_stack;  // deeper than what ends the thread
    const Seed key = client_key(session, 1).secret();
    std::ranges::copy(key.bytes, on_the_stack.begin());
    asm volatile("" : : "r"(on_the_stack.data()) : "memory");
  }));
  std::ranges::sort(found);
  CHECK((found ==
         std::vector<std::string>{"the key of round 3 on the stack", "the secret in words on the heap"}));
}

TEST_OF_BOTH(a_client_s_keys_of_all_rounds_are_wiped) {
  const EnrolledSession<Types> session(requests_for_memory<Types>().front(), 0);
  Secrets secrets;
  add_key(secrets, session, 1);
  check_nothing_found(secrets, [&] {
    const std::vector<ClientKey> keys = {client_key(session, 1), client_key(session, 1)};
    const auto copy = std::make_unique<ClientKey>(keys[0]);
    CHECK(copy->round() == kRound);
  });
}

TEST_OF_BOTH(encryption_wipes_keys_secrets_errors_and_values) {
  for (const auto& request : requests_for_memory<Types>()) {
    const EnrolledSession<Types> session(request, 0);
    const Values values = values_of(session, 1);
    const mask::Bitset mask = [&] {
      std::vector<std::uint8_t> chosen(values.size());
      for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = i % 5 != 1 ? 1 : 0;
      return mask::Bitset::from_bools(chosen);
    }();
    for (const mask::Bitset* chosen : {static_cast<const mask::Bitset*>(nullptr), &mask}) {
      const Frame batch = encrypted(session, 1, values, chosen);
      Secrets secrets;
      add_key(secrets, session, 1);
      add_frame_secret(secrets, session, 1, batch);
      KnownSeeds seeds(1);
      random_id(seeds);
      add_errors(secrets, session, seeds);
      Values gathered;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (chosen == nullptr || i % 5 != 1) gathered.push_back(values[i]);
      }
      secrets.add("the update, quantised", quantised(gathered, request.fraction_bits));
      if (chosen != nullptr) secrets.add("the update", gathered);  // else they are the caller's own
      check_nothing_found(secrets, [&] { CHECK(encrypted(session, 1, values, chosen) == batch); });
      // Also where the last value is refused, after all others were encrypted.
      Values refused = values;
      refused.back() = std::nan("");
      check_nothing_found(secrets, [&] {
        CHECK_THROWS(encrypted(session, 1, refused, chosen), ErrorCode::kRange);
        refused.back() = 1e9;
        encrypted(session, 1, refused, chosen, true);
      });
    }
  }
}

TEST_OF_BOTH(the_authority_wipes_keys_secrets_and_their_sum) {
  for (const auto& request : requests_for_memory<Types>()) {
    const EnrolledRound<Types> round(request);
    const Frame frame = round.sum_key_frame(round.total);
    const Secrets secrets = secrets_of(round);
    check_nothing_found(secrets, [&] {
      const auto made = round.sum_key(round.total).to_frame();
      CHECK(std::equal(made.begin(), made.end(), frame.begin(), frame.end()));
    });
    // Before it is written, too: what writes it may lie on the stack where the secrets were.
    check_nothing_found(secrets, [&] { CHECK(round.sum_key(round.total).head().clients == kClients); });
    check_nothing_found(secrets, [&] {
      std::vector<ClientKey> wrong = round.keys();
      wrong.back().advance_to(kRound + 1);
      CHECK_THROWS(
          Types::SumKey::of_request(*round.session.key, round.session.request_of(round.total), wrong, 1),
          ErrorCode::kKeyMismatch);
    });
  }
}

TEST_OF_BOTH(opening_wipes_the_sum_key_and_what_it_has_opened_of_a_total_that_is_refused) {
  for (const auto& request : requests_for_memory<Types>()) {
    const EnrolledRound<Types> round(request);
    const Frame sum_key = round.sum_key_frame(round.total);
    Secrets secrets = secrets_of(round);
    const auto open_with = [&](const Frame& total, const Frame& key) {
      return open(round.session, total, Types::SumKey::from_frame(key), 1);
    };
    const auto sums = open_with(round.total, sum_key).values;
    check_nothing_found(secrets, [&] { CHECK(open_with(round.total, sum_key).values == sums); });

    // The last block alone was altered: all before it opens.
    secrets.add("the sums", sums);
    secrets.add("the sums as integers", quantised(sums, request.fraction_bits));
    Frame altered = round.total;
    using View = typename EnrolledRound<Types>::View;
    const auto view = View::parse(round.total, View::Scheme::kKinds.total);
    const std::size_t block = view.block(2).data() - view.frame.data();
    std::swap_ranges(altered.begin() + static_cast<std::ptrdiff_t>(block),
                     altered.begin() + static_cast<std::ptrdiff_t>(block) + 512,
                     altered.begin() + static_cast<std::ptrdiff_t>(block) + 1024);
    reseal(altered);
    const Frame other = round.sum_key_frame(altered);
    check_nothing_found(secrets, [&] { CHECK_THROWS(open_with(altered, other), ErrorCode::kWireFormat); });
  }
}
