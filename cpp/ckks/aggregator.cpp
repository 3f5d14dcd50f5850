#include "ckks/aggregator.h"

#include "common/crc32c.h"
#include "common/error.h"
#include "rlwe/packed_digits.h"

namespace shieldfl::ckks {

Aggregator::Aggregator(std::shared_ptr<const PublicKey> key, const scheme::Expected& expected,
                       std::size_t threads)
    : RoundSum(key->parameters()->id(), key->id(), key->parameters()->facts().max_clients, expected),
      key_(std::move(key)),
      sums_(rlwe::digit_sums(key_->parameters()->digits(), 2, threads)) {}

void Aggregator::add(std::span<const std::uint8_t> frame) {
  constexpr FrameKind kind = FrameKind::kCkksBatch;
  add(CiphertextView::parse_head(frame, kind), kind, Checksum::kCheck);
}

void Aggregator::add(const CiphertextView& batch) {
  add(batch, FrameKind::kCkksBatch, Checksum::kKnown);
}

void Aggregator::add_total(std::span<const std::uint8_t> frame) {
  constexpr FrameKind kind = FrameKind::kCkksTotal;
  add(CiphertextView::parse_head(frame, kind), kind, Checksum::kCheck);
}

void Aggregator::add_total(const CiphertextView& total) {
  add(total, FrameKind::kCkksTotal, Checksum::kKnown);
}

void Aggregator::add(const CiphertextView& frame, FrameKind expected, Checksum checksum) {
  if (frame.kind != expected) {
    throw Error(ErrorCode::kWireFormat, expected == FrameKind::kCkksBatch
                                            ? "only batches are added here, no totals"
                                            : "only totals are added here, no batches");
  }
  const std::lock_guard lock(mutex_);
  try {
    check(frame.layout, frame.frame_ids);
  } catch (const Error&) {
    // Damage in the head is damage first of all, not another key or round.
    if (checksum == Checksum::kCheck) FrameReader::check_checksum(frame.frame);
    throw;
  }
  // All memory is taken before the sum is touched: an allocation that fails leaves everything as it was.
  std::set<Id> added(frame.frame_ids.begin(), frame.frame_ids.end());
  sums_.prepare(block_count(frame.facts, frame.layout));
  sums_.add(
      frame.format, frame.payload, frame.head(),
      checksum == Checksum::kCheck ? std::optional(FrameReader::stated_checksum(frame.frame)) : std::nullopt);
  note_added(frame.layout, std::move(added));
}

std::size_t Aggregator::total_bytes() const {
  return ciphertext_frame_bytes(FrameKind::kCkksTotal, key_->parameters()->facts(), summed_layout(),
                                frame_count());
}

void Aggregator::write_total(std::span<std::uint8_t> frame) const {
  const ParameterFacts& facts = key_->parameters()->facts();
  const Layout& layout = summed_layout();
  FrameWriter writer = begin_frame(FrameKind::kCkksTotal, facts, layout, frame_ids(), frame);
  const std::uint32_t head_checksum = crc32c(writer.written());
  const packed::BlockFormat format = facts.format(FrameKind::kCkksTotal);
  const auto payload = writer.reserve(block_count(facts, layout) * format.bytes());
  writer.finish(sums_.write(format, payload, head_checksum));
}

}  // namespace shieldfl::ckks
