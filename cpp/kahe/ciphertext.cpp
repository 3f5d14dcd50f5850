#include "kahe/ciphertext.h"

#include <algorithm>
#include <functional>

#include "common/error.h"
#include "scheme/frame_head.h"

namespace shieldfl::kahe {
namespace {

constexpr std::size_t kParticipantBytes = sizeof(std::uint32_t) + sizeof(Id);
constexpr std::size_t kStreamBytes = sizeof(Id) + sizeof(std::uint32_t);  // purpose and part

}  // namespace

std::size_t block_count(const ParameterFacts& facts, const Layout& layout) {
  return layout.block_count(facts.values_per_block());
}

std::size_t secret_count(std::size_t blocks) {
  return (blocks + kBlocksPerSecret - 1) / kBlocksPerSecret;
}

std::size_t FrameHead::bytes() const {
  return ParameterFacts::encoded_bytes(facts.primes.size()) + scheme::head_bytes(0) + kStreamBytes +
         participants.size() * kParticipantBytes;
}

void FrameHead::put(FrameWriter& writer) const {
  writer.put_bytes(facts.encode());
  scheme::put_head(writer, layout, 0, participants.size());
  writer.put_bytes(purpose);
  writer.put(part);
  for (const Participant& one : participants) {
    writer.put(one.client);
    writer.put_bytes(one.frame_id);
  }
}

FrameHead FrameHead::read(FrameReader& reader, std::uint32_t max_clients) {
  FrameHead head{ParameterFacts::read(reader), {}, {}, 0, {}};
  const scheme::FrameHead common = scheme::take_head(reader, head.facts.id(), scheme::kWeightedFlag,
                                                     std::min(max_clients, head.facts.max_clients));
  head.layout = common.layout;
  head.purpose = reader.take_id();
  head.part = reader.take<std::uint32_t>();
  auto bytes = reader.take_bytes(std::size_t{common.clients} * kParticipantBytes);
  head.participants.resize(common.clients);
  for (Participant& one : head.participants) {
    std::memcpy(&one.client, bytes.data(), sizeof one.client);
    std::copy_n(bytes.data() + sizeof one.client, one.frame_id.size(), one.frame_id.data());
    bytes = bytes.subspan(kParticipantBytes);
  }
  if (std::ranges::adjacent_find(head.participants, std::greater_equal<>(), &Participant::client) !=
      head.participants.end()) {
    throw Error(ErrorCode::kWireFormat,
                "the frame names a client twice, or clients out of order: it was altered");
  }
  std::vector<Id> ids;
  for (const Participant& one : head.participants) ids.push_back(one.frame_id);
  std::ranges::sort(ids);
  if (std::ranges::adjacent_find(ids) != ids.end()) {
    throw Error(ErrorCode::kWireFormat, "the frame names a batch of two clients': it was altered");
  }
  return head;
}

SumContext context_of(const FrameHead& head, const PublicKey& key) {
  if (head.layout.parameter_id != key.parameters()->id()) {
    throw Error(ErrorCode::kParameter, "the frame was made with other parameters than this session's");
  }
  if (head.layout.key_id != key.id()) {
    throw Error(ErrorCode::kKeyMismatch, "the frame was made in another session");
  }
  return {key.manifest(), key.authority(), key.epoch(), head.purpose, head.part, head.layout};
}

CiphertextView CiphertextView::parse(std::span<const std::uint8_t> frame, FrameKind expected,
                                     std::size_t threads) {
  const CiphertextView view = read_head(FrameReader(frame, expected), frame);
  view.format.check(view.payload, threads);
  return view;
}

CiphertextView CiphertextView::parse_head(std::span<const std::uint8_t> frame, FrameKind expected) {
  return read_head(FrameReader(frame, expected, FrameReader::Checksum::kLeaveToCaller), frame);
}

CiphertextView CiphertextView::read_head(FrameReader reader, std::span<const std::uint8_t> frame) {
  const FrameKind kind = reader.header().kind;
  FrameHead head = FrameHead::read(reader, kind == FrameKind::kKaheBatch ? 1 : scheme::kMaxClients);
  rlwe::BlockFormat format = head.facts.format(kind);
  const auto payload = reader.take_bytes(block_count(head.facts, head.layout) * format.bytes());
  reader.expect_end();
  return {kind, std::move(head), std::move(format), frame, payload};
}

std::span<const std::uint8_t> CiphertextView::block(std::size_t index) const {
  return payload.subspan(index * format.bytes(), format.bytes());
}

std::span<const std::uint8_t> CiphertextView::before_payload() const {
  return frame.first(frame.size() - payload.size() - kFrameTrailerBytes);
}

std::size_t ciphertext_frame_bytes(FrameKind kind, const FrameHead& head) {
  return frame_bytes(head.bytes() + block_count(head.facts, head.layout) * head.facts.format(kind).bytes());
}

FrameWriter begin_frame(FrameKind kind, const FrameHead& head, std::span<std::uint8_t> out) {
  const std::size_t payload = block_count(head.facts, head.layout) * head.facts.format(kind).bytes();
  FrameWriter writer({kind, head.layout.parameter_id, head.layout.key_id}, head.bytes() + payload, out);
  head.put(writer);
  return writer;
}

}  // namespace shieldfl::kahe
