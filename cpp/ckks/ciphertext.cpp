#include "ckks/ciphertext.h"

#include <string>

#include "common/error.h"
#include "parallel/parallel_for.h"
#include "ring/row_kernels.h"
#include "scheme/frame_head.h"

namespace shieldfl::ckks {
namespace {

void check_residues(const CiphertextView& view, std::size_t threads) {
  const ParameterFacts& facts = view.facts;
  const std::size_t blocks = block_count(facts, view.layout);
  parallel_for(
      blocks, threads_for(threads, blocks, kBlocksWorthAdding), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t block = begin; block < end; ++block) {
          for_each_row(
              facts, view.kind, view.block(block),
              [&](std::size_t row, std::span<const std::uint8_t> packed) {
                const std::uint64_t prime = facts.row_prime(row);
                if (!ring::residues_in_range(packed, facts.row_width(view.kind, row), prime, facts.degree))
                  fail_residue(block);
              });
        }
      });
}

std::size_t body_bytes(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                       std::size_t frame_ids) {
  return ParameterFacts::encoded_bytes(facts.primes.size()) + scheme::head_bytes(frame_ids) +
         block_count(facts, layout) * facts.block_bytes(kind);
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

void fail_residue(std::size_t block) {
  throw Error(ErrorCode::kWireFormat, "ciphertext " + std::to_string(block) +
                                          " has a residue above its modulus: the frame was altered");
}

CiphertextView CiphertextView::parse(std::span<const std::uint8_t> frame, FrameKind expected,
                                     std::size_t threads) {
  const CiphertextView view = read_head(FrameReader(frame, expected), frame);
  check_residues(view, threads);
  return view;
}

CiphertextView CiphertextView::parse_head(std::span<const std::uint8_t> frame, FrameKind expected) {
  return read_head(FrameReader(frame, expected, FrameReader::Checksum::kLeaveToCaller), frame);
}

CiphertextView CiphertextView::read_head(FrameReader reader, std::span<const std::uint8_t> frame) {
  const FrameKind kind = reader.header().kind;
  CiphertextView view{kind, ParameterFacts::read(reader), {}, {}, frame, {}};
  const std::uint32_t max_clients = kind == FrameKind::kCkksBatch ? 1 : view.facts.max_clients;
  const scheme::FrameHead head =
      scheme::take_head(reader, view.facts.id(), scheme::kWeightedFlag, max_clients);
  view.layout = head.layout;
  view.frame_ids = scheme::take_frame_ids(reader, head.clients);
  view.payload = reader.take_bytes(block_count(view.facts, view.layout) * view.facts.block_bytes(kind));
  reader.expect_end();
  return view;
}

std::span<const std::uint8_t> CiphertextView::block(std::size_t index) const {
  const std::size_t bytes = facts.block_bytes(kind);
  return payload.subspan(index * bytes, bytes);
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

void pack_digits(const ParameterFacts& facts, FrameKind kind, std::span<const std::uint64_t> digits,
                 std::span<std::uint8_t> out) {
  for (std::size_t row = 0; row < facts.row_count(); ++row) {
    const ring::PackedWidth width = facts.row_width(kind, row);
    const std::size_t bytes = ring::packed_bytes(facts.degree, width.bits);
    ring::pack_residues(digits.subspan(row * facts.degree, facts.degree), width, out.first(bytes));
    out = out.subspan(bytes);
  }
}

void pack_residues(const Parameters& parameters, FrameKind kind, std::span<std::uint64_t> rows,
                   std::span<std::uint8_t> out) {
  const ParameterFacts& facts = parameters.facts();
  if (facts.primes.size() == 2) {
    for (std::uint64_t* half : {rows.data(), rows.data() + rows.size() / 2}) {
      ring::row_kernels(instruction_set())
          .to_digits(half, half + facts.degree, facts.degree, parameters.digit_inverse(), facts.primes[1]);
    }
  }
  pack_digits(facts, kind, rows, out);
}

}  // namespace shieldfl::ckks
