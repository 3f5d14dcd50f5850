// An aggregator that takes damaged frames among good ones, and an account of what it took.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/ckks/ciphertext_digits.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/fuzz/frame_mutations.h"
#include "tests/fuzz/parser_outcomes.h"

namespace shieldfl::tests {

class LiveAggregator {
 public:
  // Clients encrypt `positions` equal values, or none of them unless `chosen`.
  LiveAggregator(const ckks::KeyPair& keys, std::size_t positions, bool chosen, bool weighted) : keys_(keys) {
    InsecureTestRandom seeds(kRound);
    ckks::EncryptOptions options;
    options.round = kRound;
    if (weighted) options.weight = kWeight;
    const mask::Bitset mask = chosen ? mask::Bitset::full(positions) : mask::Bitset(positions);
    // One for each client: the noise of copies of one ciphertext would add up beyond the bound.
    for (std::uint32_t i = 0; i < facts_of(keys).max_clients; ++i) {
      good_.push_back(encrypt(keys, Values(positions, kValue), seeds, options, &mask));
      good_numbers_.push_back(numbers_in(view(good_.back(), FrameKind::kCkksBatch)));
    }
    expected_value_ = weighted ? kValue * kWeight : kValue;
    start();
  }

  [[nodiscard]] const Frame& good() const { return good_.front(); }
  [[nodiscard]] const Frame& total() const { return total_; }

  // Throws where an aggregator refuses a frame as it was made.
  void take_undamaged() const {
    ckks::Aggregator whole(keys_.public_key, {.round = kRound}, 1);
    for (const Frame& batch : good_) whole.add(batch);
    const Frame total = total_of(whole);
    ckks::Aggregator of_total(keys_.public_key, {.round = kRound}, 1);
    of_total.add_total(total);
    require(total_of(of_total) == total, "a total was read wrong");
  }

  // A good batch that has not been added before.
  Frame fresh_batch(FrameMutator& mutator) { return named_anew(next_client(), mutator); }

  // A good total of one to three such batches.
  Frame fresh_total(FrameMutator& mutator) {
    const std::size_t first = next_client();
    const std::size_t count = std::min(1 + mutator.below(3), good_.size() - first);
    ckks::Aggregator subtotal(keys_.public_key, {.round = kRound}, 1);
    for (std::size_t i = 0; i < count; ++i) subtotal.add(named_anew(first + i, mutator));
    return total_of(subtotal);
  }

  // Whether it was accepted.
  bool feed_batch(const Frame& frame, ParserOutcomes& outcomes) {
    (void)next_client();
    return settle(frame, FrameKind::kCkksBatch, accepts(outcomes, [&] { aggregator_->add(frame); }));
  }

  bool feed_total(const Frame& frame, ParserOutcomes& outcomes) {
    (void)next_client();
    return settle(frame, FrameKind::kCkksTotal, accepts(outcomes, [&] { aggregator_->add_total(frame); }));
  }

  // Takes what damaged payloads brought in out of the total, and opens the rest.
  void check() const {
    const ckks::CiphertextView total_view = view(total_, FrameKind::kCkksTotal);
    std::vector<ring::UInt128> numbers = numbers_in(total_view);
    const ring::UInt128 modulus = modulus_of(total_view.facts);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = (numbers[i] + modulus - excess_[i]) % modulus;
    const Frame clean = packed(total_view, digits_of_numbers(total_view.facts, numbers));
    const ckks::OpenedSums opened = open(keys_, clean, 1);
    const auto clients = static_cast<double>(aggregator_->clients());
    const double tolerance = total_view.facts.packing == ckks::Packing::kExact ? 0.0 : 0x1p-11;
    const auto right = [&](double sum, double expected) { return std::fabs(sum - expected) <= tolerance; };
    for (const double sum : opened.values) require(right(sum, clients * expected_value_), "a sum is wrong");
    require(!opened.weight_sum || right(*opened.weight_sum, clients * kWeight),
            "the sum of weights is wrong");
  }

 private:
  static constexpr std::uint64_t kRound = 5;
  static constexpr double kValue = 0.75;
  static constexpr double kWeight = 0.5;

  void start() {
    aggregator_ = std::make_unique<ckks::Aggregator>(keys_.public_key, scheme::Expected{.round = kRound}, 1);
    aggregator_->add(good_.front());
    excess_.assign(good_numbers_.front().size(), 0);
    total_ = total_of(*aggregator_);
  }

  // The number of the client whose batch is to be added next, after a fresh start if all are there.
  std::size_t next_client() {
    if (aggregator_->clients() == good_.size()) {
      check();
      start();
    }
    return aggregator_->clients();
  }

  Frame named_anew(std::size_t client, FrameMutator& mutator) const {
    Frame frame = good_[client];
    mutator.replace_id(frame, FrameOffsets(facts_of(keys_)).frame_ids);
    return frame;
  }

  // A refused frame has changed nothing. One that was accepted is the only one with its content, and what it
  // brought in beyond the good batches of as many clients is noted.
  bool settle(const Frame& frame, FrameKind kind, bool accepted) {
    const Frame before = std::move(total_);
    total_ = total_of(*aggregator_);
    if (!accepted) {
      require(total_ == before, "a refused frame changed the sum");
      return false;
    }
    const ckks::CiphertextView added = view(frame, kind);
    require(packed(added, digits_of(added)) == frame, "two frames have the same content");
    const std::size_t end = aggregator_->clients();
    require(end <= good_.size() &&
                end == view(before, FrameKind::kCkksTotal).frame_ids.size() + added.frame_ids.size(),
            "the clients were miscounted");
    const ring::UInt128 modulus = modulus_of(added.facts);
    const std::vector<ring::UInt128> numbers = numbers_in(added);
    require(numbers.size() == excess_.size(), "a frame of another size was accepted");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      excess_[i] = (excess_[i] + numbers[i]) % modulus;
      for (std::size_t client = end - added.frame_ids.size(); client < end; ++client) {
        excess_[i] = (excess_[i] + modulus - good_numbers_[client][i]) % modulus;
      }
    }
    return true;
  }

  static ckks::CiphertextView view(const Frame& frame, FrameKind kind) {
    return ckks::CiphertextView::parse(frame, kind);
  }

  static std::vector<ring::UInt128> numbers_in(const ckks::CiphertextView& frame) {
    return numbers_of(frame.facts, digits_of(frame));
  }

  // The way back from numbers_of.
  static std::vector<std::uint64_t> digits_of_numbers(const ckks::ParameterFacts& facts,
                                                      const std::vector<ring::UInt128>& numbers) {
    std::vector<std::uint64_t> digits(numbers.size() * facts.primes.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::size_t first = i / facts.degree * facts.primes.size() * facts.degree + i % facts.degree;
      digits[first] = static_cast<std::uint64_t>(numbers[i] % facts.primes[0]);
      if (facts.primes.size() == 2) {
        digits[first + facts.degree] = static_cast<std::uint64_t>(numbers[i] / facts.primes[0]);
      }
    }
    return digits;
  }

  static Frame packed(const ckks::CiphertextView& frame, std::span<const std::uint64_t> digits) {
    FrameWriter writer = ckks::begin_frame(frame.kind, frame.facts, frame.layout, frame.frame_ids);
    const std::size_t words = frame.facts.block_words();
    for (; !digits.empty(); digits = digits.subspan(words)) {
      frame.facts.format(frame.kind)
          .pack(digits.first(words), writer.reserve(frame.facts.format(frame.kind).bytes()));
    }
    return writer.finish();
  }

  const ckks::KeyPair& keys_;
  std::unique_ptr<ckks::Aggregator> aggregator_;
  std::vector<Frame> good_;
  std::vector<std::vector<ring::UInt128>> good_numbers_;
  double expected_value_ = 0.0;
  std::vector<ring::UInt128> excess_;  // what accepted payloads differ by from good ones
  Frame total_;
};

}  // namespace shieldfl::tests
