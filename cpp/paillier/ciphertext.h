// What a client sends (a batch) and what an aggregator sends on (a total): frames, parsed without trust.
//
// The payload is a row of ciphertexts, each a residue modulo n^2 in ciphertext_bytes() bytes, big-endian. A
// batch may leave out ciphertexts whose fields are all zero: a bitmap then says which are there, and the
// others count as encryptions of zero. A bitmap, because
// it costs a bit where a ciphertext costs thousands.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/wire.h"
#include "mask/bitset.h"
#include "paillier/keys.h"
#include "paillier/parameters.h"
#include "scheme/layout.h"

namespace shieldfl::paillier {

using scheme::Layout;

// Ciphertexts of a whole layout.
std::size_t block_count(const Parameters& parameters, const Layout& layout);

// Refers to the frame's bytes.
struct CiphertextView {
  FrameKind kind;  // kPaillierBatch or kPaillierTotal
  Parameters parameters;
  Layout layout;
  std::vector<Id> frame_ids;       // a batch's own, or those of a total's batches, in ascending order
  std::uint64_t total_weight = 1;  // of a total: the sum of its batches' integer weights; 1 for a batch
  // Which of block_count() ciphertexts are there; none: all are. A batch without an encrypted weight alone
  // has it.
  std::optional<mask::Bitset> present;
  // Whether values that were sent in the clear are in a total: then a field may be twice as large.
  bool holds_clear = false;
  std::span<const std::uint8_t> frame;
  std::span<const std::uint8_t> payload;

  // Checks every field and the checksum, not the residues: check_residues. Throws Error(kWireFormat). What is
  // allocated is bounded by the frame's own length.
  static CiphertextView parse(std::span<const std::uint8_t> frame, FrameKind expected);

  // Ciphertexts in the payload.
  [[nodiscard]] std::size_t present_count() const;
};

// Throws Error(kWireFormat), which names a ciphertext by its place in the payload, unless every residue is
// below n^2 and has no factor in common with n; Error(kParameter) or Error(kKeyMismatch) for a frame under
// other parameters or another key.
void check_residues(const CiphertextView& view, const PublicKey& key, std::size_t threads);

// Residues in the payload, number `first` to first + count, as little-endian words, ciphertext_words() each.
void read_residues(const CiphertextView& view, std::size_t first, std::size_t count,
                   std::span<std::uint64_t> residues);
// The same the other way, to the payload's bytes.
void write_residues(const Parameters& parameters, std::span<const std::uint64_t> residues,
                    std::span<std::uint8_t> payload);

// The length of a frame; `present`: of a batch that leaves ciphertexts out.
std::size_t ciphertext_frame_bytes(const Parameters& parameters, const Layout& layout, std::size_t frame_ids,
                                   const mask::Bitset* present);
// Writes a frame's head to `out`, which has ciphertext_frame_bytes(...) bytes (or this is an
// Error(kInternal)); the payload is then reserved and written.
FrameWriter begin_frame(FrameKind kind, const Parameters& parameters, const Layout& layout,
                        std::span<const Id> frame_ids, std::uint64_t total_weight,
                        const mask::Bitset* present, bool holds_clear, std::span<std::uint8_t> out);

}  // namespace shieldfl::paillier
