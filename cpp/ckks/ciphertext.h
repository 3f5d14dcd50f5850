// What a client sends (a batch) and what an aggregator sends on (a total): frames, parsed without trust.
//
// A ciphertext travels as the mixed-radix digits (rlwe/digits.h) of its two halves, of which a batch leaves
// out some of the lowest bits (ParameterFacts::dropped_bits). Unpacking takes the middle 2^(d-1) for what was
// left out. That is too much by 1/2 on average, which BlockReader corrects for all batches in a total at
// once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckks/parameters.h"
#include "common/digest.h"
#include "common/wire.h"
#include "scheme/layout.h"

namespace shieldfl::ckks {

using scheme::Layout;

std::size_t block_count(const ParameterFacts& facts, const Layout& layout);

// A batch or a total. Refers to the frame's bytes.
struct CiphertextView {
  FrameKind kind;  // kCkksBatch or kCkksTotal
  ParameterFacts facts;
  packed::BlockFormat format;
  Layout layout;
  std::vector<Id> frame_ids;  // a batch's own, or those of a total's batches, in ascending order
  std::span<const std::uint8_t> frame;
  std::span<const std::uint8_t> payload;

  // Checks every field, the checksum and every residue. Throws Error(kWireFormat). What is allocated is
  // bounded by the frame's own length. `threads`: 0 means threads_for().
  static CiphertextView parse(std::span<const std::uint8_t> frame, FrameKind expected,
                              std::size_t threads = 0);
  // The same but for the checksum and the residues, which the caller checks as it reads them.
  static CiphertextView parse_head(std::span<const std::uint8_t> frame, FrameKind expected);

  // The bytes of one ciphertext.
  [[nodiscard]] std::span<const std::uint8_t> block(std::size_t index) const;
  // What the checksum covers before the ciphertexts.
  [[nodiscard]] std::span<const std::uint8_t> head() const;

 private:
  static CiphertextView read_head(FrameReader reader, std::span<const std::uint8_t> frame);
};

// The length of a frame.
std::size_t ciphertext_frame_bytes(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                                   std::size_t frame_ids);
// Writes a frame's head to `out`, which has ciphertext_frame_bytes(...) bytes (or this is an
// Error(kInternal)); block_count() * format.bytes() bytes of payload are then reserved and written.
FrameWriter begin_frame(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                        std::span<const Id> frame_ids, std::span<std::uint8_t> out);
// The same in memory of its own.
FrameWriter begin_frame(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                        std::span<const Id> frame_ids);

}  // namespace shieldfl::ckks
