#include "kahe/aggregator.h"

#include <string>

#include "common/crc32c.h"
#include "common/error.h"

namespace shieldfl::kahe {

Aggregator::Aggregator(std::shared_ptr<const PublicKey> key, const Id& purpose, std::uint32_t part,
                       const scheme::Expected& expected, std::size_t threads)
    : RoundSum(key->parameters()->id(), key->id(), key->parameters()->facts().max_clients, expected),
      key_(std::move(key)),
      purpose_(purpose),
      part_(part),
      sums_(key_->parameters()->digits(), 1, threads) {}

void Aggregator::add(std::span<const std::uint8_t> frame) {
  constexpr FrameKind kind = FrameKind::kKaheBatch;
  add(CiphertextView::parse_head(frame, kind), kind, Checksum::kCheck);
}

void Aggregator::add(const CiphertextView& batch) {
  add(batch, FrameKind::kKaheBatch, Checksum::kKnown);
}

void Aggregator::add_total(std::span<const std::uint8_t> frame) {
  constexpr FrameKind kind = FrameKind::kKaheTotal;
  add(CiphertextView::parse_head(frame, kind), kind, Checksum::kCheck);
}

void Aggregator::add_total(const CiphertextView& total) {
  add(total, FrameKind::kKaheTotal, Checksum::kKnown);
}

void Aggregator::check_frame(const CiphertextView& frame, std::span<const Id> frame_ids) const {
  check(frame.head.layout, frame_ids);
  if (frame.head.purpose != purpose_ || frame.head.part != part_) {
    throw Error(ErrorCode::kPolicy,
                "the batch is for another purpose, or another part of the model: it was not added");
  }
  for (const Participant& one : frame.head.participants) {
    if (participants_.contains(one.client)) {
      throw Error(ErrorCode::kDuplicateFrame, "client " + std::to_string(one.client) +
                                                  " is in the sum already: the batch was not added again");
    }
  }
}

void Aggregator::add(const CiphertextView& frame, FrameKind expected, Checksum checksum) {
  if (frame.kind != expected) {
    throw Error(ErrorCode::kWireFormat, expected == FrameKind::kKaheBatch
                                            ? "only batches are added here, no totals"
                                            : "only totals are added here, no batches");
  }
  // All memory is taken before the sum is touched: an allocation that fails leaves everything as it was.
  std::vector<Id> frame_ids;
  std::map<std::uint32_t, Id> participants;
  for (const Participant& one : frame.head.participants) {
    frame_ids.push_back(one.frame_id);
    participants.emplace(one.client, one.frame_id);
  }
  std::set<Id> added(frame_ids.begin(), frame_ids.end());
  const std::lock_guard lock(mutex_);
  try {
    check_frame(frame, frame_ids);
  } catch (const Error&) {
    // Damage in the head is damage first of all, not another session or round.
    if (checksum == Checksum::kCheck) FrameReader::check_checksum(frame.frame);
    throw;
  }
  sums_.prepare(block_count(frame.head.facts, frame.head.layout));
  sums_.add(
      frame.format, frame.payload, frame.before_payload(),
      checksum == Checksum::kCheck ? std::optional(FrameReader::stated_checksum(frame.frame)) : std::nullopt);
  participants_.merge(participants);
  note_added(frame.head.layout, std::move(added));
}

FrameHead Aggregator::head() const {
  FrameHead head{key_->parameters()->facts(), summed_layout(), purpose_, part_, {}};
  for (const auto& [client, frame_id] : participants_) head.participants.push_back({client, frame_id});
  return head;
}

std::size_t Aggregator::total_bytes() const {
  return ciphertext_frame_bytes(FrameKind::kKaheTotal, head());
}

void Aggregator::write_total(std::span<std::uint8_t> frame) const {
  const FrameHead head = this->head();
  FrameWriter writer = begin_frame(FrameKind::kKaheTotal, head, frame);
  const std::uint32_t head_checksum = crc32c(writer.written());
  const rlwe::BlockFormat format = head.facts.format(FrameKind::kKaheTotal);
  const auto payload = writer.reserve(block_count(head.facts, head.layout) * format.bytes());
  writer.finish(sums_.write(format, payload, head_checksum));
}

}  // namespace shieldfl::kahe
