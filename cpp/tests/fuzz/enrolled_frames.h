// Damaged frames of schemes in which clients enrol against every parser that takes them, and an aggregator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "tests/enrolled/enrolled_cases.h"
#include "tests/fuzz/frame_mutations.h"
#include "tests/fuzz/parser_outcomes.h"

namespace shieldfl::tests {

// `request`: of parameters for kClients, with words of one modulus.
template <typename Types>
class EnrolledFuzzer {
 public:
  static constexpr std::uint32_t kClients = 8;

  EnrolledFuzzer(FrameMutator& mutator, const typename Types::ParameterRequest& request)
      : mutator_(mutator), session_(request, kClients), public_key_(session_.key->to_frame()) {
    InsecureTestRandom seeds(kRound);
    for (const std::size_t positions : {std::size_t{0}, std::size_t{100}}) {
      Sum& sum = sums_.emplace_back();
      for (std::uint32_t client = 0; client < kClients; ++client) {
        sum.good.push_back(encrypt(session_, client, Values(positions, 0.75), seeds, kRound));
      }
      start(sum);
      sum.request = session_.request_of(sum.total);
      sum.opened_total = sum.total;
      const auto answered = answer(session_, sum.request, 1).to_frame();
      sum.key.assign(answered.begin(), answered.end());
    }
  }

  void step(ParserOutcomes& outcomes) {
    if (mutator_.once_in(100)) return fuzz_public_key(outcomes);
    // Whole ciphertexts are slow: most frames have none.
    Sum& sum = sums_[mutator_.once_in(5) ? 1 : 0];
    switch (mutator_.below(6)) {
      case 0:
        return fuzz_request(sum, outcomes);
      case 1:
        return fuzz_sum_key(sum, outcomes);
      case 2:
        return fuzz_opening(sum, outcomes);
      case 3:
        return feed(sum, kKinds.total, fresh_total(sum), outcomes);
      default:
        return feed(sum, kKinds.batch, sum.good[mutator_.below(kClients)], outcomes);
    }
  }

 private:
  static constexpr std::uint64_t kRound = 5;
  using Session = EnrolledSession<Types>;
  using Aggregator = typename Session::Aggregator;
  using View = typename Session::View;
  static constexpr auto kKinds = Session::Scheme::kKinds;

  // A sum that goes on, and one of its totals with what opens it.
  struct Sum {
    std::vector<Frame> good;  // of each client
    std::unique_ptr<Aggregator> aggregator;
    Frame total;
    Frame opened_total;
    typename Session::Request request;
    Frame key;
  };

  void start(Sum& sum) {
    sum.aggregator =
        std::make_unique<Aggregator>(session_.key, kUpdate, 0, scheme::Expected{.round = kRound}, 1);
    sum.aggregator->add(sum.good.front());
    sum.total = total_of(*sum.aggregator);
  }

  // Clients from the second on, up to three of them.
  Frame fresh_total(const Sum& sum) {
    Aggregator subtotal(session_.key, kUpdate, 0, {.round = kRound}, 1);
    const std::size_t first = 1 + mutator_.below(kClients - 1);
    const std::size_t end = std::min<std::size_t>(first + 1 + mutator_.below(3), kClients);
    for (std::size_t client = first; client < end; ++client) subtotal.add(sum.good[client]);
    return total_of(subtotal);
  }

  const Frame& any_frame(const Sum& sum) {
    const Frame* const frames[] = {&sum.good[mutator_.below(kClients)], &sum.total, &sum.key, &public_key_};
    return *frames[mutator_.below(std::size(frames))];
  }

  // What may be damaged, seldom with ids in the header that are those of what it has become.
  Frame damaged(Frame frame, const Sum& sum) {
    if (mutator_.once_in(20)) return frame;
    mutator_.mutate(frame, any_frame(sum));
    const std::size_t end = kFrameHeaderBytes + session_.facts().encode().size();
    if (mutator_.once_in(8) && frame.size() >= end) {
      const Id id = digest(std::span(frame).first(end).subspan(kFrameHeaderBytes));
      std::copy(id.begin(), id.end(), frame.begin() + 16);
      reseal(frame);
    }
    return frame;
  }

  void fuzz_public_key(ParserOutcomes& outcomes) {
    const Frame frame = damaged(public_key_, sums_.front());
    (void)summarise_frame(frame);
    std::shared_ptr<const typename Types::PublicKey> read;
    if (accepts(outcomes, [&] { read = Types::PublicKey::from_frame(frame); })) {
      require(read->to_frame() == frame, "two frames have the same key");
    }
  }

  void fuzz_request(const Sum& sum, ParserOutcomes& outcomes) {
    const Frame frame = damaged(sum.request.to_frame(), sum);
    (void)summarise_frame(frame);
    typename Session::Request read;
    if (!accepts(outcomes, [&] { read = Session::Request::from_frame(frame); })) return;
    require(read.to_frame() == frame, "two frames have the same request");
    // The number of values is the requester's word: how long an answer may get is for the authority to say.
    if (read.head.layout.value_count > session_.facts().values_per_block()) return;
    accepts(outcomes,
            [&] { (void)Types::SumKey::of_request(*session_.key, read, session_.keys_for(sum.request), 1); });
  }

  void fuzz_sum_key(const Sum& sum, ParserOutcomes& outcomes) {
    const Frame frame = damaged(sum.key, sum);
    (void)summarise_frame(frame);
    std::optional<typename Types::SumKey> read;
    if (!accepts(outcomes, [&] { read = Types::SumKey::from_frame(frame); })) return;
    const auto written = read->to_frame();
    require(std::ranges::equal(written, frame), "two frames have the same sum key");
    require(Types::SumKey::head_of(frame).sum == read->head().sum, "a sum key has two heads");
    if (accepts(outcomes, [&] { (void)open(session_, sum.opened_total, *read, 1); })) {
      // Of pads each number opens a value by itself: what binds an answer is the authority's signature.
      const bool is_bound = std::is_same_v<Types, KaheTypes>;
      require(!is_bound || frame == sum.key, "another sum key opens a total");
    }
  }

  void fuzz_opening(const Sum& sum, ParserOutcomes& outcomes) {
    const Frame frame = damaged(sum.opened_total, sum);
    (void)summarise_frame(frame);
    const bool opened =
        accepts(outcomes, [&] { (void)open(session_, frame, Types::SumKey::from_frame(sum.key), 1); });
    require(!opened || frame == sum.opened_total, "a sum key opens another total");
  }

  // A refused frame has changed nothing. One that was accepted is the only one with its content, and the sum
  // holds it.
  void feed(Sum& sum, FrameKind kind, Frame fresh, ParserOutcomes& outcomes) {
    if (sum.aggregator->clients() == kClients) start(sum);
    const Frame frame = damaged(std::move(fresh), sum);
    (void)summarise_frame(frame);
    const Frame before = std::move(sum.total);
    const bool accepted = accepts(outcomes, [&] {
      if (kind == kKinds.batch) {
        sum.aggregator->add(frame);
      } else {
        sum.aggregator->add_total(frame);
      }
    });
    sum.total = total_of(*sum.aggregator);
    if (!accepted) return require(sum.total == before, "a refused frame changed the sum");
    const auto added = View::parse(frame, kind);
    const auto old = View::parse(before, kKinds.total);
    const auto now = View::parse(sum.total, kKinds.total);
    require(written_again(added) == frame, "two frames have the same content");
    std::vector<enrolled::Participant> everybody = old.head.participants;
    everybody.insert(everybody.end(), added.head.participants.begin(), added.head.participants.end());
    std::ranges::sort(everybody);
    require(now.head.participants == everybody, "the list of clients is wrong");
    const auto new_digits = digits_of(added);
    const auto old_digits = digits_of(old);
    const auto digits = digits_of(now);
    for (std::size_t i = 0; i < digits.size(); ++i) {
      require(digits[i] == (old_digits[i] + new_digits[i]) % now.format.rows()[0].modulus, "a sum is wrong");
    }
  }

  // Of one modulus, so that words are numbers.
  static std::vector<std::uint64_t> digits_of(const View& view) {
    std::vector<std::uint64_t> digits(view.payload.size() / view.format.bytes() * view.format.words());
    for (std::size_t at = 0; at < digits.size(); at += view.format.words()) {
      view.format.unpack(view.block(at / view.format.words()),
                         std::span(digits).subspan(at, view.format.words()));
    }
    return digits;
  }

  static Frame written_again(const View& view) {
    Frame frame(enrolled::ciphertext_frame_bytes(view.kind, view.head));
    FrameWriter writer = enrolled::begin_frame(view.kind, view.head, frame);
    const std::vector<std::uint64_t> digits = digits_of(view);
    for (std::size_t at = 0; at < digits.size(); at += view.format.words()) {
      view.format.pack(std::span(digits).subspan(at, view.format.words()),
                       writer.reserve(view.format.bytes()));
    }
    writer.finish();
    return frame;
  }

  FrameMutator& mutator_;
  const Session session_;
  const Frame public_key_;
  std::vector<Sum> sums_;
};

}  // namespace shieldfl::tests
