#include "ckks/ciphertext.h"

#include "scheme/frame_head.h"

namespace shieldfl::ckks {
namespace {

std::size_t body_bytes(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                       std::size_t frame_ids) {
  return ParameterFacts::encoded_bytes(facts.primes.size()) + scheme::head_bytes(frame_ids) +
         block_count(facts, layout) * facts.format(kind).bytes();
}

// What comes between the header and the ciphertexts.
void put_head(FrameWriter& writer, const ParameterFacts& facts, const Layout& layout,
              std::span<const Id> frame_ids) {
  writer.put_bytes(facts.encode());
  scheme::put_head(writer, layout, 0, frame_ids.size());
  scheme::put_frame_ids(writer, frame_ids);
}

}  // namespace

std::size_t block_count(const ParameterFacts& facts, const Layout& layout) {
  return layout.block_count(facts.values_per_block());
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
  const ParameterFacts facts = ParameterFacts::read(reader);
  const std::uint32_t max_clients = kind == FrameKind::kCkksBatch ? 1 : facts.max_clients;
  scheme::FrameHead head = scheme::take_head(reader, facts.id(), scheme::kWeightedFlag, max_clients);
  std::vector<Id> frame_ids = scheme::take_frame_ids(reader, head.clients);
  packed::BlockFormat format = facts.format(kind);
  const auto payload = reader.take_bytes(block_count(facts, head.layout) * format.bytes());
  reader.expect_end();
  return {kind, facts, std::move(format), head.layout, std::move(frame_ids), frame, payload};
}

std::span<const std::uint8_t> CiphertextView::block(std::size_t index) const {
  return payload.subspan(index * format.bytes(), format.bytes());
}

std::span<const std::uint8_t> CiphertextView::head() const {
  return frame.first(frame.size() - payload.size() - kFrameTrailerBytes);
}

std::size_t ciphertext_frame_bytes(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                                   std::size_t frame_ids) {
  return frame_bytes(body_bytes(kind, facts, layout, frame_ids));
}

FrameWriter begin_frame(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                        std::span<const Id> frame_ids, std::span<std::uint8_t> out) {
  FrameWriter writer({kind, layout.parameter_id, layout.key_id},
                     body_bytes(kind, facts, layout, frame_ids.size()), out);
  put_head(writer, facts, layout, frame_ids);
  return writer;
}

FrameWriter begin_frame(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                        std::span<const Id> frame_ids) {
  FrameWriter writer({kind, layout.parameter_id, layout.key_id},
                     body_bytes(kind, facts, layout, frame_ids.size()));
  put_head(writer, facts, layout, frame_ids);
  return writer;
}

}  // namespace shieldfl::ckks
