// What a client sends (a batch) and what an aggregator sends on (a total): frames, parsed without trust.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckks/parameters.h"
#include "common/digest.h"
#include "common/wire.h"

namespace shieldfl::ckks {

// What must be equal for two batches to be summed.
struct Layout {
  Id parameter_id{};
  Id key_id{};
  std::uint64_t round = 0;
  Id mask_id{};  // which positions the values belong to
  std::uint64_t value_count = 0;
  bool weighted = false;  // one value more follows: the client's weight

  [[nodiscard]] std::uint64_t field_count() const { return value_count + (weighted ? 1 : 0); }
  bool operator==(const Layout&) const = default;
};

// The most values that a frame may state: with more, sizes in bytes could overflow.
inline constexpr std::uint64_t kMaxValueCount = std::uint64_t{1} << 40;

std::size_t block_count(const ParameterFacts& facts, const Layout& layout);

// A batch or a total whose every field and residue has been checked. Refers to the frame's bytes.
struct CiphertextView {
  FrameKind kind;  // kCkksBatch or kCkksTotal
  ParameterFacts facts;
  Layout layout;
  std::vector<Id> frame_ids;  // a batch's own, or those of a total's batches, in ascending order
  std::span<const std::uint8_t> payload;

  // Throws Error(kWireFormat). What is allocated is bounded by the frame's own length.
  static CiphertextView parse(std::span<const std::uint8_t> frame, FrameKind expected);

  // The residues of one ciphertext: block_words() of them, c0 then c1, a row for each prime.
  void unpack_block(std::size_t block, std::span<std::uint64_t> rows) const;
};

// The frame's head; block_count() * block_bytes() bytes of payload are then reserved and written.
FrameWriter begin_frame(FrameKind kind, const ParameterFacts& facts, const Layout& layout,
                        std::span<const Id> frame_ids);

// Writes the residues of one ciphertext to its block_bytes() bytes.
void pack_block(const ParameterFacts& facts, std::span<const std::uint64_t> rows,
                std::span<std::uint8_t> out);

}  // namespace shieldfl::ckks
