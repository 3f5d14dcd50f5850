#include "ckks/ciphertext.h"

#include <algorithm>
#include <bit>
#include <string>

#include "common/error.h"
#include "ring/bit_packing.h"

namespace shieldfl::ckks {
namespace {

constexpr std::uint32_t kWeightedFlag = 1;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kWireFormat, what);
}

void check_residues(const CiphertextView& view) {
  std::vector<std::uint64_t> rows(view.facts.block_words());
  const std::size_t blocks = block_count(view.facts, view.layout);
  const std::size_t prime_count = view.facts.primes.size();
  for (std::size_t block = 0; block < blocks; ++block) {
    view.unpack_block(block, rows);
    for (std::size_t row = 0; row < 2 * prime_count; ++row) {
      const std::uint64_t prime = view.facts.primes[row % prime_count];
      const auto residues = std::span(rows).subspan(row * view.facts.degree, view.facts.degree);
      if (std::any_of(residues.begin(), residues.end(), [prime](std::uint64_t r) { return r >= prime; })) {
        fail("ciphertext " + std::to_string(block) +
             " has a residue above its modulus: the frame was altered");
      }
    }
  }
}

}  // namespace

std::size_t block_count(const ParameterFacts& facts, const Layout& layout) {
  const std::size_t capacity = facts.values_per_block();
  return (layout.field_count() + capacity - 1) / capacity;
}

CiphertextView CiphertextView::parse(std::span<const std::uint8_t> frame, FrameKind expected) {
  FrameReader reader(frame, expected);
  CiphertextView view{expected, ParameterFacts::read(reader), {}, {}, {}};
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
  if (layout.value_count > kMaxValueCount || (flags & ~kWeightedFlag) != 0) {
    fail("the frame states values that no frame has: it was altered");
  }
  layout.weighted = (flags & kWeightedFlag) != 0;
  const bool batch = expected == FrameKind::kCkksBatch;
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
  view.payload = reader.take_bytes(block_count(view.facts, layout) * view.facts.block_bytes());
  reader.expect_end();
  check_residues(view);
  return view;
}

void CiphertextView::unpack_block(std::size_t block, std::span<std::uint64_t> rows) const {
  std::size_t offset = block * facts.block_bytes();
  for (std::size_t row = 0; row < 2 * facts.primes.size(); ++row) {
    const auto bits = static_cast<unsigned>(std::bit_width(facts.primes[row % facts.primes.size()]));
    const std::size_t bytes = ring::packed_bytes(facts.degree, bits);
    ring::unpack_residues(payload.subspan(offset, bytes), bits,
                          rows.subspan(row * facts.degree, facts.degree));
    offset += bytes;
  }
}

FrameWriter begin_frame(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                        std::span<const Id> frame_ids) {
  constexpr std::size_t kLayoutBytes = 8 + sizeof(Id) + 8 + 4 + 4;
  const std::size_t body = ParameterFacts::encoded_bytes(facts.primes.size()) + kLayoutBytes +
                           frame_ids.size() * sizeof(Id) + block_count(facts, layout) * facts.block_bytes();
  FrameWriter writer({kind, layout.parameter_id, layout.key_id}, body);
  writer.put_bytes(facts.encode());
  writer.put(layout.round);
  writer.put_bytes(layout.mask_id);
  writer.put(layout.value_count);
  writer.put(layout.weighted ? kWeightedFlag : std::uint32_t{0});
  writer.put(static_cast<std::uint32_t>(frame_ids.size()));
  for (const Id& id : frame_ids) writer.put_bytes(id);
  return writer;
}

void pack_block(const ParameterFacts& facts, std::span<const std::uint64_t> rows,
                std::span<std::uint8_t> out) {
  std::size_t offset = 0;
  for (std::size_t row = 0; row < 2 * facts.primes.size(); ++row) {
    const auto bits = static_cast<unsigned>(std::bit_width(facts.primes[row % facts.primes.size()]));
    const std::size_t bytes = ring::packed_bytes(facts.degree, bits);
    ring::pack_residues(rows.subspan(row * facts.degree, facts.degree), bits, out.subspan(offset, bytes));
    offset += bytes;
  }
}

}  // namespace shieldfl::ckks
