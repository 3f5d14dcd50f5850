#include "enrolled/participants.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "common/error.h"

namespace shieldfl::enrolled {

void put_participants(FrameWriter& writer, std::span<const Participant> participants) {
  for (const Participant& one : participants) {
    writer.put(one.client);
    writer.put_bytes(one.frame_id);
  }
}

std::vector<Participant> take_participants(FrameReader& reader, std::size_t count) {
  auto bytes = reader.take_bytes(count * kParticipantBytes);
  std::vector<Participant> participants(count);
  for (Participant& one : participants) {
    std::memcpy(&one.client, bytes.data(), sizeof one.client);
    std::copy_n(bytes.data() + sizeof one.client, one.frame_id.size(), one.frame_id.data());
    bytes = bytes.subspan(kParticipantBytes);
  }
  if (std::ranges::adjacent_find(participants, std::greater_equal<>(), &Participant::client) !=
      participants.end()) {
    throw Error(ErrorCode::kWireFormat,
                "the frame names a client twice, or clients out of order: it was altered");
  }
  std::vector<Id> ids;
  for (const Participant& one : participants) ids.push_back(one.frame_id);
  std::ranges::sort(ids);
  if (std::ranges::adjacent_find(ids) != ids.end()) {
    throw Error(ErrorCode::kWireFormat, "the frame names a batch of two clients': it was altered");
  }
  return participants;
}

}  // namespace shieldfl::enrolled
