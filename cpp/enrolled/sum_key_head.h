// What every authority's answer states before the sum of one-time secrets in it, whatever the scheme. Who
// computes it sees neither the total nor what is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/wire.h"
#include "enrolled/context.h"

namespace shieldfl::enrolled {

// The most authorities that a session may have: each has to answer.
inline constexpr std::size_t kMaxAuthorities = 3;

struct SumKeyHead {
  Id parameter_id{};
  Id key_id{};
  std::uint32_t clients = 0;
  std::uint32_t unit = 0;   // the scheme's: of what its numbers are
  std::uint64_t count = 0;  // of numbers
  Digest sum{};             // sum_digest() of the request
  Digest total_digest{};    // as the request stated it

  static constexpr std::size_t kBytes = 4 + 4 + 8 + 2 * sizeof(Digest);

  void put(FrameWriter& writer) const;
  // Throws Error(kWireFormat) for no clients, or more than there may be.
  static SumKeyHead read(FrameReader& reader);
};

// The head of an answer in this context. Throws Error(kParameter) unless there is a key for each participant,
// Error(kKeyMismatch) unless each is the participant's, of this session and at the context's round.
SumKeyHead head_of_answer(const SumContext& context, std::span<const Participant> participants,
                          const Digest& total_digest, std::span<const ClientKey> keys);

// Throws unless the answer is for the total of this context and these participants, whose digest the caller
// has worked out: Error(kParameter) for other parameters, Error(kKeyMismatch) for another session, list or
// total, Error(kWireFormat) where it states `count` numbers of this `unit`, or its clients, otherwise.
void check_answers(const SumKeyHead& answer, const SumContext& context,
                   std::span<const Participant> participants, const Digest& total_digest, std::uint32_t unit,
                   std::uint64_t count);

}  // namespace shieldfl::enrolled
