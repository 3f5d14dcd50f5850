// Damaged frames of key-additive encryption against every parser that takes them, and an aggregator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/fuzz/frame_mutations.h"
#include "tests/fuzz/parser_outcomes.h"
#include "tests/kahe/kahe_cases.h"

namespace shieldfl::tests {

class KaheFuzzer {
 public:
  explicit KaheFuzzer(FrameMutator& mutator) : mutator_(mutator) {
    InsecureTestRandom seeds(kRound);
    for (const std::size_t positions : {std::size_t{0}, std::size_t{100}}) {
      Sum& sum = sums_.emplace_back();
      for (std::uint32_t client = 0; client < kClients; ++client) {
        sum.good.push_back(encrypt(session_, client, Values(positions, 0.75), seeds, kRound));
      }
      start(sum);
      sum.request = request_of(sum.total);
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
        return feed(sum, FrameKind::kKaheTotal, fresh_total(sum), outcomes);
      default:
        return feed(sum, FrameKind::kKaheBatch, sum.good[mutator_.below(kClients)], outcomes);
    }
  }

 private:
  static constexpr std::uint64_t kRound = 5;
  static constexpr std::uint32_t kClients = 8;

  // A sum that goes on, and one of its totals with what opens it.
  struct Sum {
    std::vector<Frame> good;  // of each client
    std::unique_ptr<kahe::Aggregator> aggregator;
    Frame total;
    Frame opened_total;
    kahe::SumRequest request;
    Frame key;
  };

  void start(Sum& sum) {
    sum.aggregator =
        std::make_unique<kahe::Aggregator>(session_.key, kUpdate, 0, scheme::Expected{.round = kRound}, 1);
    sum.aggregator->add(sum.good.front());
    sum.total = total_of(*sum.aggregator);
  }

  // Clients from the second on, up to three of them.
  Frame fresh_total(const Sum& sum) {
    kahe::Aggregator subtotal(session_.key, kUpdate, 0, {.round = kRound}, 1);
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
    constexpr std::size_t kEnd = kFrameHeaderBytes + kahe::ParameterFacts::encoded_bytes(1);
    if (mutator_.once_in(8) && frame.size() >= kEnd) {
      const Id id = digest(std::span(frame).first(kEnd).subspan(kFrameHeaderBytes));
      std::copy(id.begin(), id.end(), frame.begin() + 16);
      reseal(frame);
    }
    return frame;
  }

  void fuzz_public_key(ParserOutcomes& outcomes) {
    const Frame frame = damaged(public_key_, sums_.front());
    (void)summarise_frame(frame);
    std::shared_ptr<const kahe::PublicKey> read;
    if (accepts(outcomes, [&] { read = kahe::PublicKey::from_frame(frame); })) {
      require(read->to_frame() == frame, "two frames have the same key");
    }
  }

  void fuzz_request(const Sum& sum, ParserOutcomes& outcomes) {
    const Frame frame = damaged(sum.request.to_frame(), sum);
    (void)summarise_frame(frame);
    kahe::SumRequest read;
    if (!accepts(outcomes, [&] { read = kahe::SumRequest::from_frame(frame); })) return;
    require(read.to_frame() == frame, "two frames have the same request");
    // The number of values is the requester's word: how long an answer may get is for the authority to say.
    if (read.head.layout.value_count > session_.facts().values_per_block()) return;
    accepts(outcomes,
            [&] { (void)kahe::SumKey::of_request(*session_.key, read, session_.keys_for(sum.request), 1); });
  }

  void fuzz_sum_key(const Sum& sum, ParserOutcomes& outcomes) {
    const Frame frame = damaged(sum.key, sum);
    (void)summarise_frame(frame);
    std::optional<kahe::SumKey> read;
    if (!accepts(outcomes, [&] { read = kahe::SumKey::from_frame(frame); })) return;
    const auto written = read->to_frame();
    require(std::ranges::equal(written, frame), "two frames have the same sum key");
    if (accepts(outcomes, [&] { (void)open(session_, sum.opened_total, *read, 1); })) {
      require(frame == sum.key, "another sum key opens a total");
    }
  }

  void fuzz_opening(const Sum& sum, ParserOutcomes& outcomes) {
    const Frame frame = damaged(sum.opened_total, sum);
    (void)summarise_frame(frame);
    const bool opened =
        accepts(outcomes, [&] { (void)open(session_, frame, kahe::SumKey::from_frame(sum.key), 1); });
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
      if (kind == FrameKind::kKaheBatch) {
        sum.aggregator->add(frame);
      } else {
        sum.aggregator->add_total(frame);
      }
    });
    sum.total = total_of(*sum.aggregator);
    if (!accepted) return require(sum.total == before, "a refused frame changed the sum");
    const auto added = kahe::CiphertextView::parse(frame, kind);
    const auto old = kahe::CiphertextView::parse(before, FrameKind::kKaheTotal);
    const auto now = kahe::CiphertextView::parse(sum.total, FrameKind::kKaheTotal);
    require(written_again(added) == frame, "two frames have the same content");
    std::vector<kahe::Participant> everybody = old.head.participants;
    everybody.insert(everybody.end(), added.head.participants.begin(), added.head.participants.end());
    std::ranges::sort(everybody);
    require(now.head.participants == everybody, "the list of clients is wrong");
    const auto new_digits = digits_of(added);
    const auto old_digits = digits_of(old);
    const auto digits = digits_of(now);
    for (std::size_t i = 0; i < digits.size(); ++i) {
      require(digits[i] == (old_digits[i] + new_digits[i]) % now.head.facts.primes[0], "a sum is wrong");
    }
  }

  // Of one prime, so that digits are numbers.
  static std::vector<std::uint64_t> digits_of(const kahe::CiphertextView& view) {
    std::vector<std::uint64_t> digits(view.payload.size() / view.format.bytes() * view.format.words());
    for (std::size_t at = 0; at < digits.size(); at += view.format.words()) {
      view.format.unpack(view.block(at / view.format.words()),
                         std::span(digits).subspan(at, view.format.words()));
    }
    return digits;
  }

  static Frame written_again(const kahe::CiphertextView& view) {
    Frame frame(kahe::ciphertext_frame_bytes(view.kind, view.head));
    FrameWriter writer = kahe::begin_frame(view.kind, view.head, frame);
    const std::vector<std::uint64_t> digits = digits_of(view);
    for (std::size_t at = 0; at < digits.size(); at += view.format.words()) {
      view.format.pack(std::span(digits).subspan(at, view.format.words()),
                       writer.reserve(view.format.bytes()));
    }
    writer.finish();
    return frame;
  }

  FrameMutator& mutator_;
  const Session session_{{kClients, 24, 20, 2048}, kClients};
  const Frame public_key_ = session_.key->to_frame();
  std::vector<Sum> sums_;
};

}  // namespace shieldfl::tests
