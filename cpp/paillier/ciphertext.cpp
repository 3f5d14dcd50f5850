#include "paillier/ciphertext.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "common/error.h"
#include "mask/words.h"

namespace shieldfl::paillier {
namespace {

constexpr std::uint32_t kWeightedFlag = 1;
constexpr std::uint32_t kLeavesOutFlag = 2;

// Round, mask id, value count, flags, clients and total weight.
constexpr std::size_t kFieldBytes = 8 + sizeof(Id) + 8 + 4 + 4 + 8;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kWireFormat, what);
}

std::size_t bitmap_bytes(std::size_t blocks) {
  return (blocks + 7) / 8;
}

std::size_t body_bytes(const Parameters& parameters, const Layout& layout, std::size_t frame_ids,
                       const mask::Bitset* present) {
  const std::size_t blocks = block_count(parameters, layout);
  return Parameters::kEncodedBytes + kFieldBytes + frame_ids * sizeof(Id) +
         (present == nullptr ? 0 : bitmap_bytes(blocks)) +
         (present == nullptr ? blocks : present->count()) * parameters.ciphertext_bytes();
}

std::vector<Id> take_frame_ids(FrameReader& reader, std::size_t clients) {
  const auto bytes = reader.take_bytes(clients * sizeof(Id));
  std::vector<Id> ids(clients);
  for (std::size_t i = 0; i < clients; ++i)
    std::copy_n(bytes.data() + i * sizeof(Id), sizeof(Id), ids[i].data());
  if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) != ids.end()) {
    fail("the total names the same batch twice, or its batches out of order: it was altered");
  }
  return ids;
}

mask::Bitset take_present(FrameReader& reader, std::size_t blocks) {
  const auto bitmap = reader.take_bytes(bitmap_bytes(blocks));
  if (blocks > mask::kMaxPositions) fail("the frame leaves ciphertexts out of more than there can be");
  mask::WordVector words(mask::words_for(blocks), 0);
  if (!bitmap.empty()) std::memcpy(words.data(), bitmap.data(), bitmap.size());
  if (!words.empty() && (words.back() & ~mask::tail_bits(blocks)) != 0) {
    fail("the frame has ciphertexts past its last value: it was altered");
  }
  mask::Bitset present = mask::Bitset::from_words(std::move(words), blocks);
  if (present.count() == blocks)
    fail("the frame leaves no ciphertext out and says that it does: it was altered");
  return present;
}

}  // namespace

std::size_t block_count(const Parameters& parameters, const Layout& layout) {
  const std::size_t capacity = parameters.values_per_ciphertext();
  return (layout.field_count() + capacity - 1) / capacity;
}

CiphertextView CiphertextView::parse(std::span<const std::uint8_t> frame, FrameKind expected) {
  FrameReader reader(frame, expected);
  CiphertextView view{expected, Parameters::read(reader), {}, {}, 1, {}, frame, {}};
  const Parameters& parameters = view.parameters;
  Layout& layout = view.layout;
  layout.parameter_id = reader.header().parameter_id;
  layout.key_id = reader.header().key_id;
  if (parameters.id() != layout.parameter_id) {
    fail("the frame's parameter id is not that of its parameters: it was altered");
  }
  layout.round = reader.take<std::uint64_t>();
  layout.mask_id = reader.take_id();
  layout.value_count = reader.take<std::uint64_t>();
  const auto flags = reader.take<std::uint32_t>();
  const auto clients = reader.take<std::uint32_t>();
  view.total_weight = reader.take<std::uint64_t>();
  layout.weighted = (flags & kWeightedFlag) != 0;
  const bool leaves_out = (flags & kLeavesOutFlag) != 0;
  const bool batch = expected == FrameKind::kPaillierBatch;
  // A weight is in the last ciphertext, and whoever looks for it has to find it.
  if (layout.value_count > scheme::kMaxValueCount || (flags & ~(kWeightedFlag | kLeavesOutFlag)) != 0 ||
      (leaves_out && (layout.weighted || !batch))) {
    fail("the frame states values that no frame has: it was altered");
  }
  if (clients < 1 || clients > parameters.max_clients || (batch && clients != 1)) {
    fail("the frame states a number of clients that its parameters do not allow: it was altered");
  }
  const std::uint64_t most_weight = batch || layout.weighted ? 1 : parameters.max_weight;
  if (view.total_weight < clients || view.total_weight > clients * most_weight) {
    fail("the frame states a sum of weights that its clients cannot have: it was altered");
  }
  view.frame_ids = take_frame_ids(reader, clients);
  if (leaves_out) view.present = take_present(reader, block_count(parameters, layout));
  view.payload = reader.take_bytes(view.present_count() * parameters.ciphertext_bytes());
  reader.expect_end();
  return view;
}

std::size_t CiphertextView::present_count() const {
  return present ? present->count() : block_count(parameters, layout);
}

void read_residues(const CiphertextView& view, std::size_t first, std::size_t count,
                   std::span<std::uint64_t> residues) {
  const std::size_t words = view.parameters.ciphertext_words();
  const std::uint8_t* bytes = view.payload.data() + first * view.parameters.ciphertext_bytes();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = words; j-- > 0; bytes += sizeof(std::uint64_t)) {
      std::uint64_t word;
      std::memcpy(&word, bytes, sizeof word);
      residues[i * words + j] = __builtin_bswap64(word);
    }
  }
}

void write_residues(const Parameters& parameters, std::span<const std::uint64_t> residues,
                    std::span<std::uint8_t> payload) {
  const std::size_t words = parameters.ciphertext_words();
  std::uint8_t* bytes = payload.data();
  for (std::size_t first = 0; first < residues.size(); first += words) {
    for (std::size_t j = words; j-- > 0; bytes += sizeof(std::uint64_t)) {
      const std::uint64_t word = __builtin_bswap64(residues[first + j]);
      std::memcpy(bytes, &word, sizeof word);
    }
  }
}

std::size_t ciphertext_frame_bytes(const Parameters& parameters, const Layout& layout, std::size_t frame_ids,
                                   const mask::Bitset* present) {
  return frame_bytes(body_bytes(parameters, layout, frame_ids, present));
}

FrameWriter begin_frame(FrameKind kind, const Parameters& parameters, const Layout& layout,
                        std::span<const Id> frame_ids, std::uint64_t total_weight,
                        const mask::Bitset* present, std::span<std::uint8_t> out) {
  FrameWriter writer({kind, layout.parameter_id, layout.key_id},
                     body_bytes(parameters, layout, frame_ids.size(), present), out);
  writer.put_bytes(parameters.encode());
  writer.put(layout.round);
  writer.put_bytes(layout.mask_id);
  writer.put(layout.value_count);
  writer.put((layout.weighted ? kWeightedFlag : 0) | (present != nullptr ? kLeavesOutFlag : 0));
  writer.put(static_cast<std::uint32_t>(frame_ids.size()));
  writer.put(total_weight);
  for (const Id& id : frame_ids) writer.put_bytes(id);
  if (present != nullptr) {
    const auto* bitmap = reinterpret_cast<const std::uint8_t*>(present->words().data());
    writer.put_bytes({bitmap, bitmap_bytes(present->size())});
  }
  return writer;
}

}  // namespace shieldfl::paillier
