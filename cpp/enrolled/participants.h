// The list of those who are in a sum, as frames have it: by client, ascending, each with its frame's id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/wire.h"
#include "enrolled/context.h"

namespace shieldfl::enrolled {

inline constexpr std::size_t kParticipantBytes = sizeof(std::uint32_t) + sizeof(Id);

void put_participants(FrameWriter& writer, std::span<const Participant> participants);
// Throws Error(kWireFormat) unless they are in ascending order of their clients, with a frame id of its own
// each.
std::vector<Participant> take_participants(FrameReader& reader, std::size_t count);

}  // namespace shieldfl::enrolled
