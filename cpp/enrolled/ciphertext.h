// What a client sends (a batch) and what an aggregator sends on (a total), whatever the scheme: frames,
// parsed without trust.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/wire.h"
#include "enrolled/participants.h"
#include "packed/block_format.h"
#include "scheme/fixed_point.h"
#include "scheme/frame_head.h"

namespace shieldfl::enrolled {

// What a sum is of, besides its participants: the head of every frame about it.
template <typename Facts>
struct FrameHead {
  Facts facts;
  Layout layout;
  Id purpose{};
  std::uint32_t part = 0;
  std::vector<Participant> participants;  // by client, ascending; of a batch its own

  [[nodiscard]] std::size_t block_count() const { return layout.block_count(facts.values_per_block()); }

  [[nodiscard]] std::size_t bytes() const {
    return facts.encode().size() + scheme::head_bytes(0) + sizeof purpose + sizeof part +
           participants.size() * kParticipantBytes;
  }

  void put(FrameWriter& writer) const {
    writer.put_bytes(facts.encode());
    scheme::put_head(writer, layout, 0, participants.size());
    writer.put_bytes(purpose);
    writer.put(part);
    put_participants(writer, participants);
  }

  // Throws Error(kWireFormat) unless the fields are in range, with 1 to `max_clients` participants (those of
  // the parameters at most), as take_participants() has them.
  static FrameHead read(FrameReader& reader, std::uint32_t max_clients) {
    FrameHead head{Facts::read(reader), {}, {}, 0, {}};
    const scheme::FrameHead common = scheme::take_head(reader, head.facts.id(), scheme::kWeightedFlag,
                                                       std::min(max_clients, head.facts.max_clients));
    head.layout = common.layout;
    if (head.layout.weighted && !head.facts.holds_any_sum()) {
      throw Error(ErrorCode::kWireFormat,
                  "the frame states weights, whose sum has no room beside these values: it was altered");
    }
    head.purpose = reader.take_id();
    head.part = reader.template take<std::uint32_t>();
    head.participants = take_participants(reader, common.clients);
    return head;
  }
};

// The length of a batch or a total.
template <typename Facts>
std::size_t ciphertext_frame_bytes(FrameKind kind, const FrameHead<Facts>& head) {
  return frame_bytes(head.bytes() + head.block_count() * head.facts.format(kind).bytes());
}

// Writes a frame's head to `out`, which has ciphertext_frame_bytes(...) bytes (or this is an
// Error(kInternal)); block_count() * format.bytes() bytes of payload are then reserved and written.
template <typename Facts>
FrameWriter begin_frame(FrameKind kind, const FrameHead<Facts>& head, std::span<std::uint8_t> out) {
  const std::size_t payload = head.block_count() * head.facts.format(kind).bytes();
  FrameWriter writer({kind, head.layout.parameter_id, head.layout.key_id}, head.bytes() + payload, out);
  head.put(writer);
  return writer;
}

// A batch or a total. Refers to the frame's bytes.
template <typename SchemeFacts>
struct CiphertextView {
  using Scheme = SchemeFacts;

  FrameKind kind;
  FrameHead<typename Scheme::Facts> head;
  packed::BlockFormat format;
  std::span<const std::uint8_t> frame;
  std::span<const std::uint8_t> payload;

  // Checks every field, the checksum and every word. Throws Error(kWireFormat). What is allocated is bounded
  // by the frame's own length. `threads`: 0 means threads_for().
  static CiphertextView parse(std::span<const std::uint8_t> frame, FrameKind expected,
                              std::size_t threads = 0) {
    const CiphertextView view = read_head(FrameReader(frame, expected), frame);
    view.format.check(view.payload, threads);
    return view;
  }
  // The same but for the checksum and the words, which the caller checks as it reads them.
  static CiphertextView parse_head(std::span<const std::uint8_t> frame, FrameKind expected) {
    return read_head(FrameReader(frame, expected, FrameReader::Checksum::kLeaveToCaller), frame);
  }

  // The bytes of one block.
  [[nodiscard]] std::span<const std::uint8_t> block(std::size_t index) const {
    return payload.subspan(index * format.bytes(), format.bytes());
  }
  // What the checksum covers before the blocks.
  [[nodiscard]] std::span<const std::uint8_t> before_payload() const {
    return frame.first(frame.size() - payload.size() - kFrameTrailerBytes);
  }

 private:
  static CiphertextView read_head(FrameReader reader, std::span<const std::uint8_t> frame) {
    const FrameKind kind = reader.header().kind;
    auto head = FrameHead<typename Scheme::Facts>::read(
        reader, kind == Scheme::kKinds.batch ? 1 : scheme::kMaxClients);
    packed::BlockFormat format = head.facts.format(kind);
    const auto payload = reader.take_bytes(head.block_count() * format.bytes());
    reader.expect_end();
    return {kind, std::move(head), std::move(format), frame, payload};
  }
};

// Throws Error(kPolicy) for a batch.
template <typename View>
void check_is_total(const View& view) {
  if (view.kind != View::Scheme::kKinds.total) {
    throw Error(ErrorCode::kPolicy, "only totals are opened, never a single client's batch");
  }
}

}  // namespace shieldfl::enrolled
