#include "ckks/aggregator.h"

#include <algorithm>
#include <string>

#include "common/error.h"
#include "parallel/parallel_for.h"
#include "ring/modulus.h"

namespace shieldfl::ckks {

Aggregator::Aggregator(std::shared_ptr<const PublicKey> key, std::optional<std::uint64_t> round,
                       std::size_t threads)
    : key_(std::move(key)), threads_(resolve_threads(threads)), round_(round) {}

void Aggregator::add(std::span<const std::uint8_t> frame) {
  add(CiphertextView::parse(frame, FrameKind::kCkksBatch));
}

void Aggregator::check(const CiphertextView& batch) const {
  const ParameterFacts& facts = key_->parameters()->facts();
  const Layout& layout = batch.layout;
  if (batch.kind != FrameKind::kCkksBatch) throw Error(ErrorCode::kWireFormat, "only batches can be added");
  if (layout.parameter_id != key_->parameters()->id()) {
    throw Error(ErrorCode::kParameter,
                "the batch was made with other parameters: all clients must use those of the public key");
  }
  if (layout.key_id != key_->id()) {
    throw Error(ErrorCode::kKeyMismatch,
                "the batch was encrypted under another key: send the client the current public key");
  }
  if (round_ && layout.round != *round_) {
    throw Error(ErrorCode::kPolicy, "the batch is of round " + std::to_string(layout.round) +
                                        ", the sum of round " + std::to_string(*round_) +
                                        ": it was not added");
  }
  if (frame_ids_.contains(batch.frame_ids.front())) {
    throw Error(ErrorCode::kDuplicateFrame, "this batch is in the sum already: it was not added again");
  }
  if (layout_ && layout != *layout_) {
    throw Error(
        ErrorCode::kParameter,
        "the batch holds other positions, or another number of values, or differs in having a weight: "
        "the clients of a round must agree on mask and weighting");
  }
  if (frame_ids_.size() >= facts.max_clients) {
    throw Error(ErrorCode::kCapacity,
                "the sum holds " + std::to_string(frame_ids_.size()) +
                    " clients, all that the parameters have room for: raise max_clients");
  }
}

void Aggregator::add(const CiphertextView& batch) {
  const std::lock_guard lock(mutex_);
  check(batch);
  const ParameterFacts& facts = key_->parameters()->facts();
  const std::size_t block_words = facts.block_words();
  const std::size_t blocks = block_count(facts, batch.layout);
  // All memory is taken before the sum is touched: an allocation that fails leaves everything as it was.
  if (!layout_) sums_.assign(blocks * block_words, 0);
  const std::size_t parts = std::clamp<std::size_t>(blocks, 1, threads_);
  std::vector<std::uint64_t> scratch(parts * block_words);
  const auto add_blocks = [&](std::size_t part) {
    const auto rows = std::span(scratch).subspan(part * block_words, block_words);
    for (std::size_t block = blocks * part / parts; block < blocks * (part + 1) / parts; ++block) {
      batch.unpack_block(block, rows);
      std::uint64_t* sum = sums_.data() + block * block_words;
      for (std::size_t row = 0; row < 2 * facts.primes.size(); ++row) {
        const std::uint64_t q = facts.primes[row % facts.primes.size()];
        for (std::size_t i = row * facts.degree; i < (row + 1) * facts.degree; ++i) {
          sum[i] = ring::add(sum[i], rows[i], q);
        }
      }
    }
  };
  const auto place = frame_ids_.insert(batch.frame_ids.front()).first;
  try {
    parallel_for(parts, parts, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t part = begin; part < end; ++part) add_blocks(part);
    });
  } catch (...) {
    frame_ids_.erase(place);  // thrown before the first block: the blocks themselves cannot fail
    throw;
  }
  layout_ = batch.layout;
  round_ = batch.layout.round;
}

std::size_t Aggregator::clients() const {
  const std::lock_guard lock(mutex_);
  return frame_ids_.size();
}

std::optional<std::uint64_t> Aggregator::round() const {
  const std::lock_guard lock(mutex_);
  return round_;
}

std::vector<std::uint8_t> Aggregator::total() const {
  const std::lock_guard lock(mutex_);
  if (!layout_) {
    throw Error(ErrorCode::kParameter, "no batch has been added, so there is no total: add at least one");
  }
  const ParameterFacts& facts = key_->parameters()->facts();
  const std::vector<Id> ids(frame_ids_.begin(), frame_ids_.end());
  FrameWriter writer = begin_frame(FrameKind::kCkksTotal, facts, *layout_, ids);
  const std::size_t blocks = block_count(facts, *layout_);
  const auto payload = writer.reserve(blocks * facts.block_bytes());
  parallel_for(blocks, threads_, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      pack_block(facts, std::span(sums_).subspan(block * facts.block_words(), facts.block_words()),
                 payload.subspan(block * facts.block_bytes(), facts.block_bytes()));
    }
  });
  return writer.finish();
}

}  // namespace shieldfl::ckks
