#include "paillier/ciphertext.h"

#include <cstring>
#include <string>
#include <utility>

#include "common/error.h"
#include "mask/words.h"
#include "paillier/big_endian.h"
#include "scheme/frame_head.h"

namespace shieldfl::paillier {
namespace {

constexpr std::uint32_t kLeavesOutFlag = 2;
constexpr std::uint32_t kHoldsClearFlag = 4;

std::size_t bitmap_bytes(std::size_t blocks) {
  return (blocks + 7) / 8;
}

std::size_t body_bytes(const Parameters& parameters, const Layout& layout, std::size_t frame_ids,
                       const mask::Bitset* present) {
  const std::size_t blocks = block_count(parameters, layout);
  return ParameterFacts::kEncodedBytes + scheme::head_bytes(frame_ids) +
         sizeof(CiphertextView::total_weight) + (present == nullptr ? 0 : bitmap_bytes(blocks)) +
         (present == nullptr ? blocks : present->count()) * parameters.ciphertext_bytes();
}

mask::Bitset take_present(FrameReader& reader, std::size_t blocks) {
  const auto bitmap = reader.take_bytes(bitmap_bytes(blocks));
  if (blocks > mask::kMaxPositions) {
    fail_wire_format("the frame leaves ciphertexts out of more than there can be");
  }
  mask::WordVector words(mask::words_for(blocks), 0);
  if (!bitmap.empty()) std::memcpy(words.data(), bitmap.data(), bitmap.size());
  if (!words.empty() && (words.back() & ~mask::tail_bits(blocks)) != 0) {
    fail_wire_format("the frame has ciphertexts past its last value: it was altered");
  }
  mask::Bitset present = mask::Bitset::from_words(std::move(words), blocks);
  if (present.count() == blocks) {
    fail_wire_format("the frame leaves no ciphertext out and says that it does: it was altered");
  }
  return present;
}

}  // namespace

std::size_t block_count(const Parameters& parameters, const Layout& layout) {
  return layout.block_count(parameters.values_per_ciphertext());
}

CiphertextView CiphertextView::parse(std::span<const std::uint8_t> frame, FrameKind expected) {
  FrameReader reader(frame, expected);
  CiphertextView view{expected, Parameters::read(reader), {}, {}, 1, {}, false, frame, {}};
  const Parameters& parameters = view.parameters;
  const bool batch = expected == FrameKind::kPaillierBatch;
  const scheme::FrameHead head = scheme::take_head(
      reader, parameters.id(), scheme::kWeightedFlag | (batch ? kLeavesOutFlag : kHoldsClearFlag),
      batch ? 1 : parameters.facts().max_clients);
  view.layout = head.layout;
  view.total_weight = reader.take<std::uint64_t>();
  view.holds_clear = (head.flags & kHoldsClearFlag) != 0;
  const bool leaves_out = (head.flags & kLeavesOutFlag) != 0;
  // A weight is in the last ciphertext, and whoever looks for it has to find it.
  if (leaves_out && view.layout.weighted) {
    fail_wire_format(
        "the frame has a weight and leaves ciphertexts out, which no frame does: it was altered");
  }
  const std::uint64_t most_weight = batch || view.layout.weighted ? 1 : parameters.facts().max_weight;
  if (view.total_weight < head.clients || view.total_weight > head.clients * most_weight) {
    fail_wire_format("the frame states a sum of weights that its clients cannot have: it was altered");
  }
  view.frame_ids = scheme::take_frame_ids(reader, head.clients);
  if (leaves_out) view.present = take_present(reader, block_count(parameters, view.layout));
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
  const std::size_t bytes = view.parameters.ciphertext_bytes();
  for (std::size_t i = 0; i < count; ++i) {
    from_big_endian(view.payload.subspan((first + i) * bytes, bytes), residues.subspan(i * words, words));
  }
}

void write_residues(const Parameters& parameters, std::span<const std::uint64_t> residues,
                    std::span<std::uint8_t> payload) {
  const std::size_t words = parameters.ciphertext_words();
  const std::size_t bytes = parameters.ciphertext_bytes();
  for (std::size_t i = 0; i < residues.size() / words; ++i) {
    to_big_endian(residues.subspan(i * words, words), payload.subspan(i * bytes, bytes));
  }
}

std::size_t ciphertext_frame_bytes(const Parameters& parameters, const Layout& layout, std::size_t frame_ids,
                                   const mask::Bitset* present) {
  return frame_bytes(body_bytes(parameters, layout, frame_ids, present));
}

FrameWriter begin_frame(FrameKind kind, const Parameters& parameters, const Layout& layout,
                        std::span<const Id> frame_ids, std::uint64_t total_weight,
                        const mask::Bitset* present, bool holds_clear, std::span<std::uint8_t> out) {
  FrameWriter writer({kind, layout.parameter_id, layout.key_id},
                     body_bytes(parameters, layout, frame_ids.size(), present), out);
  writer.put_bytes(parameters.facts().encode());
  scheme::put_head(writer, layout,
                   (present != nullptr ? kLeavesOutFlag : 0) | (holds_clear ? kHoldsClearFlag : 0),
                   frame_ids.size());
  writer.put(total_weight);
  scheme::put_frame_ids(writer, frame_ids);
  if (present != nullptr) {
    const auto* bitmap = reinterpret_cast<const std::uint8_t*>(present->words().data());
    writer.put_bytes({bitmap, bitmap_bytes(present->size())});
  }
  return writer;
}

}  // namespace shieldfl::paillier
