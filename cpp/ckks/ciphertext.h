// What a client sends (a batch) and what an aggregator sends on (a total): frames, parsed without trust.
//
// A ciphertext travels as rows of mixed-radix digits: with one prime the residues themselves; with two, c
// modulo q0 q1 as c = digit0 + q0 digit1, a row of each for either half. So the lowest bits of digit0 are the
// lowest bits of the coefficient, and a batch leaves some of them out (ParameterFacts::dropped_bits).
// Unpacking takes the middle 2^(d-1) for what was left out. That is too much by 1/2 on average, which
// BlockReader corrects for all batches in a total at once.
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

// What a thread must have to do before it is worth its start: threads_for(). Encrypting and opening a block
// take some 25 us, adding and checking one some 5 us, where the processor has AVX-512.
inline constexpr std::size_t kBlocksWorthEncrypting = 16;
inline constexpr std::size_t kBlocksWorthAdding = 32;

// A batch or a total. Refers to the frame's bytes.
struct CiphertextView {
  FrameKind kind;  // kCkksBatch or kCkksTotal
  ParameterFacts facts;
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

 private:
  static CiphertextView read_head(FrameReader reader, std::span<const std::uint8_t> frame);
};

// The error for a residue that no frame has.
[[noreturn]] void fail_residue(std::size_t block);

// The length of a frame.
std::size_t ciphertext_frame_bytes(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                                   std::size_t frame_ids);
// Writes a frame's head to `out`, which has ciphertext_frame_bytes(...) bytes (or this is an
// Error(kInternal)); block_count() * block_bytes() bytes of payload are then reserved and written.
FrameWriter begin_frame(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                        std::span<const Id> frame_ids, std::span<std::uint8_t> out);
// The same in memory of its own.
FrameWriter begin_frame(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                        std::span<const Id> frame_ids);

// Calls read(row, packed bytes of the row) for the rows of one ciphertext, whose bytes `block` are.
template <typename Read>
void for_each_row(const ParameterFacts& facts, FrameKind kind, std::span<const std::uint8_t> block,
                  Read read) {
  for (std::size_t row = 0; row < facts.row_count(); ++row) {
    const std::size_t bytes = ring::packed_bytes(facts.degree, facts.row_width(kind, row).bits);
    read(row, block.first(bytes));
    block = block.subspan(bytes);
  }
}

// Writes the digits of one ciphertext to its block_bytes() bytes.
void pack_digits(const ParameterFacts& facts, FrameKind kind, std::span<const std::uint64_t> digits,
                 std::span<std::uint8_t> out);
// The same from the residues of one ciphertext, which become digits on the way.
void pack_residues(const Parameters& parameters, FrameKind kind, std::span<std::uint64_t> rows,
                   std::span<std::uint8_t> out);

}  // namespace shieldfl::ckks
