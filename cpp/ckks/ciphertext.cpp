#include "ckks/ciphertext.h"

#include <algorithm>
#include <functional>
#include <string>

#include "common/error.h"
#include "parallel/parallel_for.h"
#include "ring/row_kernels.h"

namespace shieldfl::ckks {
namespace {

constexpr std::uint32_t kWeightedFlag = 1;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kWireFormat, what);
}

void check_residues(const CiphertextView& view, std::size_t threads) {
  const ParameterFacts& facts = view.facts;
  parallel_for(
      block_count(facts, view.layout), resolve_threads(threads), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t block = begin; block < end; ++block) {
          for_each_row(
              facts, view.kind, view.block(block),
              [&](std::size_t row, std::span<const std::uint8_t> packed) {
                const std::uint64_t prime = facts.primes[row % facts.primes.size()];
                if (!ring::residues_in_range(packed, facts.row_width(view.kind, row), prime, facts.degree))
                  fail_residue(block);
              });
        }
      });
}

constexpr std::size_t kLayoutBytes = 8 + sizeof(Id) + 8 + 4 + 4;

std::size_t body_bytes(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                       std::size_t frame_ids) {
  return ParameterFacts::encoded_bytes(facts.primes.size()) + kLayoutBytes + frame_ids * sizeof(Id) +
         block_count(facts, layout) * facts.block_bytes(kind);
}

// What comes between the header and the ciphertexts.
void put_head(FrameWriter& writer, const ParameterFacts& facts, const Layout& layout,
              std::span<const Id> frame_ids) {
  writer.put_bytes(facts.encode());
  writer.put(layout.round);
  writer.put_bytes(layout.mask_id);
  writer.put(layout.value_count);
  writer.put(layout.weighted ? kWeightedFlag : std::uint32_t{0});
  writer.put(static_cast<std::uint32_t>(frame_ids.size()));
  for (const Id& id : frame_ids) writer.put_bytes(id);
}

}  // namespace

std::size_t block_count(const ParameterFacts& facts, const Layout& layout) {
  const std::size_t capacity = facts.values_per_block();
  return (layout.field_count() + capacity - 1) / capacity;
}

void fail_residue(std::size_t block) {
  fail("ciphertext " + std::to_string(block) + " has a residue above its modulus: the frame was altered");
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
  Layout& layout = view.layout;
  layout.parameter_id = reader.header().parameter_id;
  layout.key_id = reader.header().key_id;
  if (view.facts.id() != layout.parameter_id) {
    fail("the frame's parameter id is not that of its parameters: it was altered");
  }
  layout.round = reader.take<std::uint64_t>();
  layout.mask_id = reader.take_id();
  layout.value_count = reader.take<std::uint64_t>();
  const auto flags = reader.take<std::uint32_t>();
  const auto clients = reader.take<std::uint32_t>();
  if (layout.value_count > scheme::kMaxValueCount || (flags & ~kWeightedFlag) != 0) {
    fail("the frame states values that no frame has: it was altered");
  }
  layout.weighted = (flags & kWeightedFlag) != 0;
  const bool batch = kind == FrameKind::kCkksBatch;
  if (clients < 1 || clients > view.facts.max_clients || (batch && clients != 1)) {
    fail("the frame states a number of clients that its parameters do not allow: it was altered");
  }
  const auto ids = reader.take_bytes(std::size_t{clients} * sizeof(Id));
  view.frame_ids.resize(clients);
  for (std::size_t i = 0; i < clients; ++i)
    std::copy_n(ids.data() + i * sizeof(Id), sizeof(Id), view.frame_ids[i].data());
  if (std::adjacent_find(view.frame_ids.begin(), view.frame_ids.end(), std::greater_equal<>()) !=
      view.frame_ids.end()) {
    fail("the total names the same batch twice, or its batches out of order: it was altered");
  }
  view.payload = reader.take_bytes(block_count(view.facts, layout) * view.facts.block_bytes(kind));
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
