// Sums batches, and totals of other aggregators, as they arrive, in the memory of one accumulator, and keeps
// the list of who is in the sum. Several threads may add at once; they take turns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "common/error.h"
#include "enrolled/ciphertext.h"
#include "packed/packed_sums.h"
#include "scheme/round_sum.h"

namespace shieldfl::enrolled {

template <typename PublicKey>
class Aggregator final : public scheme::RoundSum {
 public:
  using Scheme = typename PublicKey::Scheme;
  using View = CiphertextView<Scheme>;

  // Of batches for this purpose and part of a model.
  Aggregator(std::shared_ptr<const PublicKey> key, const Id& purpose, std::uint32_t part,
             const scheme::Expected& expected, std::size_t threads)
      : RoundSum(key->parameters()->id(), key->id(), key->parameters()->facts().max_clients, expected),
        key_(std::move(key)),
        purpose_(purpose),
        part_(part),
        sums_(key_->parameters()->sums(threads)) {}

  // Adds a batch in one pass that checks as it adds. The bytes may not change meanwhile. `client`: who sent
  // it, where that is known. Throws, and changes nothing, Error(kWireFormat) for bytes that are no intact
  // batch, Error(kParameter) for other parameters or another selection of positions, Error(kKeyMismatch) for
  // another session or another client's batch, Error(kPolicy) for another round, purpose or part,
  // Error(kDuplicateFrame) for a client that is in the sum already, Error(kCapacity) past max_clients.
  void add(std::span<const std::uint8_t> frame, std::optional<std::uint32_t> client = {}) {
    constexpr FrameKind kind = Scheme::kKinds.batch;
    add(View::parse_head(frame, kind), kind, Checksum::kCheck, client);
  }
  // The same for a batch that was parsed, and so checked, before.
  void add(const View& batch, std::optional<std::uint32_t> client = {}) {
    add(batch, Scheme::kKinds.batch, Checksum::kKnown, client);
  }

  // The same for the total of another aggregator, which stands for all the clients that it names: take it
  // from aggregators alone, never from a client. kDuplicateFrame if any of its clients is in the sum.
  void add_total(std::span<const std::uint8_t> frame) {
    constexpr FrameKind kind = Scheme::kKinds.total;
    add(View::parse_head(frame, kind), kind, Checksum::kCheck, {});
  }
  void add_total(const View& total) { add(total, Scheme::kKinds.total, Checksum::kKnown, {}); }

 private:
  enum class Checksum : std::uint8_t { kCheck, kKnown };
  using Head = FrameHead<typename Scheme::Facts>;

  void check_frame(const View& frame, std::span<const Id> frame_ids,
                   std::optional<std::uint32_t> client) const {
    // Whose it is comes first: that a client's batch is in the sum says nothing about who repeats it.
    if (client && frame.head.participants.front().client != *client) {
      throw Error(ErrorCode::kKeyMismatch, "client " + std::to_string(*client) +
                                               " sent the batch of another client: it was not added");
    }
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

  void add(const View& frame, FrameKind expected, Checksum checksum, std::optional<std::uint32_t> client) {
    if (frame.kind != expected) {
      throw Error(ErrorCode::kWireFormat, expected == Scheme::kKinds.batch
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
      check_frame(frame, frame_ids, client);
    } catch (const Error&) {
      // Damage in the head is damage first of all, not another session or round.
      if (checksum == Checksum::kCheck) FrameReader::check_checksum(frame.frame);
      throw;
    }
    sums_.prepare(frame.head.block_count());
    sums_.add(frame.format, frame.payload, frame.before_payload(),
              checksum == Checksum::kCheck ? std::optional(FrameReader::stated_checksum(frame.frame))
                                           : std::nullopt);
    participants_.merge(participants);
    note_added(frame.head.layout, std::move(added));
  }

  [[nodiscard]] Head head() const {
    Head head{key_->parameters()->facts(), summed_layout(), purpose_, part_, {}};
    for (const auto& [client, frame_id] : participants_) head.participants.push_back({client, frame_id});
    return head;
  }

  [[nodiscard]] std::size_t total_bytes() const override {
    return ciphertext_frame_bytes(Scheme::kKinds.total, head());
  }

  void write_total(std::span<std::uint8_t> frame) const override {
    const Head head = this->head();
    FrameWriter writer = begin_frame(Scheme::kKinds.total, head, frame);
    const std::uint32_t head_checksum = crc32c(writer.written());
    const packed::BlockFormat format = head.facts.format(Scheme::kKinds.total);
    const auto payload = writer.reserve(head.block_count() * format.bytes());
    writer.finish(sums_.write(format, payload, head_checksum));
  }

  std::shared_ptr<const PublicKey> key_;
  Id purpose_;
  std::uint32_t part_;
  std::map<std::uint32_t, Id> participants_;  // client to frame id
  packed::PackedSums sums_;
};

}  // namespace shieldfl::enrolled
