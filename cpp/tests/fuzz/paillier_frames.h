// Damaged frames of Paillier's kinds against every parser that takes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/fuzz/frame_mutations.h"
#include "tests/fuzz/parser_outcomes.h"
#include "tests/paillier/paillier_batches.h"

namespace shieldfl::tests {

class PaillierFuzzer {
 public:
  explicit PaillierFuzzer(FrameMutator& mutator) : mutator_(mutator) {
    InsecureTestRandom seeds(kRound);
    paillier::EncryptOptions options;
    options.round = kRound;
    const std::vector<const mask::Bitset*> masks = {&everybody_, &outer_};
    order_.emplace(paillier::UnionOrder::from_masks(masks));
    for (const mask::Bitset* const mask : masks) {
      good_.push_back(encrypt_in_union(*key_, Values(kPositions, 0.75), *order_, *mask, seeds, options));
    }
    start();
  }

  // Throws where a parser refuses a frame as it was made.
  void take_undamaged() const {
    const Frame key = key_->to_frame();
    require(paillier::PublicKey::from_frame(key, key_->engine().kind())->to_frame() == key,
            "a key was read wrong");
    const Frame order = order_->to_frame();
    require(paillier::UnionOrder::from_frame(order, kPositions).to_frame() == order,
            "an order was read wrong");
    paillier::Aggregator whole(keys_.public_key, kRound, 1, &*order_);
    for (const Frame& batch : good_) whole.add(batch);
    const Frame total = total_of(whole);
    paillier::Aggregator of_total(keys_.public_key, kRound, 1, &*order_);
    of_total.add_total(total);
    require(total_of(of_total) == total, "a total was read wrong");
    (void)open(keys_, total);
  }

  void step(ParserOutcomes& outcomes) {
    if (mutator_.once_in(20)) return fuzz_public_key(outcomes);
    if (mutator_.once_in(3)) return fuzz_union_order(outcomes);
    const bool batch = !mutator_.once_in(3);
    Frame frame = batch ? fresh_batch() : fresh_total();
    if (!mutator_.once_in(20)) damage(frame);
    (void)summarise_frame(frame);
    feed(frame, batch ? FrameKind::kPaillierBatch : FrameKind::kPaillierTotal, outcomes);
  }

 private:
  static constexpr std::uint64_t kRound = 5;
  static constexpr std::size_t kPositions = 3;

  void start() {
    aggregator_ = std::make_unique<paillier::Aggregator>(keys_.public_key, kRound, 1, &*order_);
    aggregator_->add(good_.front());
    total_ = total_of(*aggregator_);
  }

  Frame fresh_batch() {
    Frame frame = good_[mutator_.below(good_.size())];
    mutator_.replace_id(frame, PaillierOffsets::kFrameIds);
    return frame;
  }

  Frame fresh_total() {
    paillier::Aggregator subtotal(keys_.public_key, kRound, 1, &*order_);
    for (std::size_t i = 0; i <= mutator_.below(3); ++i) {
      subtotal.add(fresh_batch(), 1 + static_cast<std::uint32_t>(mutator_.below(10)));
    }
    return total_of(subtotal);
  }

  void damage(Frame& frame) {
    mutator_.mutate(frame, mutator_.once_in(2) ? total_ : good_[mutator_.below(good_.size())]);
    constexpr std::size_t kEnd = PaillierOffsets::kParameters + paillier::ParameterFacts::kEncodedBytes;
    if (!mutator_.once_in(8) || frame.size() < kEnd) return;
    const Id id = digest(
        std::span(frame).subspan(PaillierOffsets::kParameters, paillier::ParameterFacts::kEncodedBytes));
    std::copy(id.begin(), id.end(), frame.begin() + 16);
    reseal(frame);
  }

  // A refused frame has changed nothing. One that was accepted is the only one with its content, and the sum
  // holds it.
  void feed(const Frame& frame, FrameKind kind, ParserOutcomes& outcomes) {
    if (aggregator_->clients() == key_->parameters().facts().max_clients) start();
    const Frame before = total_;
    const bool accepted = accepts(outcomes, [&] {
      if (kind == FrameKind::kPaillierBatch) {
        aggregator_->add(frame);
      } else {
        aggregator_->add_total(frame);
      }
    });
    total_ = total_of(*aggregator_);
    if (!accepted) return require(total_ == before, "a refused frame changed the sum");
    const auto added = paillier::CiphertextView::parse(frame, kind);
    require(written_again(added) == frame, "two frames have the same content");
    const std::vector<paillier::BigInteger> old_sums = residues_of(total_view(before));
    const std::vector<paillier::BigInteger> sums = residues_of(total_view(total_));
    const std::vector<paillier::BigInteger> factors = residues_of(added);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      require(sums[i] == old_sums[i] * factors[i] % (modulus_ * modulus_), "a sum is wrong");
    }
    require(aggregator_->clients() == total_view(before).frame_ids.size() + added.frame_ids.size(),
            "the clients were miscounted");
    require(total_view(total_).total_weight == total_view(before).total_weight + added.total_weight,
            "the weights were miscounted");
  }

  void fuzz_union_order(ParserOutcomes& outcomes) {
    Frame frame = order_->to_frame();
    if (!mutator_.once_in(50)) mutator_.mutate(frame, total_);
    std::optional<paillier::UnionOrder> read;
    if (accepts(outcomes, [&] { read = paillier::UnionOrder::from_frame(frame, kPositions); })) {
      require(read->to_frame() == frame, "two frames have the same order");
    }
  }

  void fuzz_public_key(ParserOutcomes& outcomes) {
    Frame frame = key_->to_frame();
    if (!mutator_.once_in(50)) damage(frame);
    std::shared_ptr<const paillier::PublicKey> read;
    const auto parse = [&] { read = paillier::PublicKey::from_frame(frame, key_->engine().kind()); };
    if (accepts(outcomes, parse)) require(read->to_frame() == frame, "two frames have the same key");
  }

  // One for each ciphertext of the layout: 1 where it was left out.
  static std::vector<paillier::BigInteger> residues_of(const paillier::CiphertextView& view) {
    const std::size_t bytes = view.parameters.ciphertext_bytes();
    std::vector<paillier::BigInteger> residues;
    std::size_t place = 0;
    for (std::size_t block = 0; block < paillier::block_count(view.parameters, view.layout); ++block) {
      const bool there = !view.present || view.present->test(block);
      residues.push_back(there ? from_bytes(view.payload.subspan(bytes * place++, bytes))
                               : paillier::BigInteger(1));
    }
    return residues;
  }

  static Frame written_again(const paillier::CiphertextView& view) {
    const mask::Bitset* const present = view.present ? &*view.present : nullptr;
    Frame frame(
        paillier::ciphertext_frame_bytes(view.parameters, view.layout, view.frame_ids.size(), present));
    FrameWriter writer = paillier::begin_frame(view.kind, view.parameters, view.layout, view.frame_ids,
                                               view.total_weight, present, view.holds_clear, frame);
    writer.put_bytes(view.payload);
    writer.finish();
    return frame;
  }

  FrameMutator& mutator_;
  const paillier::KeyPair& keys_ = key_pair(kSingleParameters);
  const std::shared_ptr<const paillier::PublicKey> key_ = keys_.public_key;
  const paillier::BigInteger modulus_ = modulus_of(*key_);
  const mask::Bitset everybody_ = mask::Bitset::full(kPositions);
  const mask::Bitset outer_ =
      everybody_ - mask::Bitset::from_indices(std::vector<std::int64_t>{1}, kPositions);
  std::optional<paillier::UnionOrder> order_;
  std::vector<Frame> good_;
  std::unique_ptr<paillier::Aggregator> aggregator_;
  Frame total_;
};

}  // namespace shieldfl::tests
