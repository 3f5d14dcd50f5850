// What a client sends (a batch) and what an aggregator sends on (a total): frames, parsed without trust. A
// ciphertext is one polynomial, c = a s + e + m, as the mixed-radix digits of rlwe/digits.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/wire.h"
#include "kahe/context.h"
#include "kahe/parameters.h"
#include "kahe/public_key.h"
#include "rlwe/block_format.h"

namespace shieldfl::kahe {

std::size_t block_count(const ParameterFacts& facts, const Layout& layout);
// Secret polynomials that a frame of this many ciphertexts takes.
std::size_t secret_count(std::size_t blocks);

// What a sum is of, besides its participants: the head of every frame about it.
struct FrameHead {
  ParameterFacts facts;
  Layout layout;
  Id purpose{};
  std::uint32_t part = 0;
  std::vector<Participant> participants;  // by client, ascending; of a batch its own

  [[nodiscard]] std::size_t bytes() const;
  void put(FrameWriter& writer) const;
  // Throws Error(kWireFormat) unless the fields are in range, with 1 to `max_clients` participants (those of
  // the parameters at most), in ascending order of their clients, with a frame id of its own each.
  static FrameHead read(FrameReader& reader, std::uint32_t max_clients);
};

// What secrets are bound to. Throws Error(kParameter) or Error(kKeyMismatch) for the head of another
// session's frame.
SumContext context_of(const FrameHead& head, const PublicKey& key);

// A batch or a total. Refers to the frame's bytes.
struct CiphertextView {
  FrameKind kind;  // kKaheBatch or kKaheTotal
  FrameHead head;
  rlwe::BlockFormat format;
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
  [[nodiscard]] std::span<const std::uint8_t> before_payload() const;

 private:
  static CiphertextView read_head(FrameReader reader, std::span<const std::uint8_t> frame);
};

// The length of a frame.
std::size_t ciphertext_frame_bytes(FrameKind kind, const FrameHead& head);
// Writes a frame's head to `out`, which has ciphertext_frame_bytes(...) bytes (or this is an
// Error(kInternal)); block_count() * format.bytes() bytes of payload are then reserved and written.
FrameWriter begin_frame(FrameKind kind, const FrameHead& head, std::span<std::uint8_t> out);

}  // namespace shieldfl::kahe
