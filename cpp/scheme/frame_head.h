// What the frames of batches and totals have alike, whatever the scheme, between parameters and ciphertexts:
//
//   bytes  field
//   8      round
//   16     mask id
//   8      value count
//   4      flags: kWeightedFlag and the scheme's own
//   4      clients
//   ...    what the scheme adds
//   ...    clients * 16: the ids of their batches, in ascending order
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/wire.h"
#include "scheme/layout.h"

namespace shieldfl::scheme {

inline constexpr std::uint32_t kWeightedFlag = 1;

// Of all but what the scheme adds.
constexpr std::size_t head_bytes(std::size_t frame_ids) {
  return 8 + sizeof(Id) + 8 + 4 + 4 + frame_ids * sizeof(Id);
}

struct FrameHead {
  Layout layout;
  std::uint32_t flags;
  std::uint32_t clients;
};

// The fields up to the number of clients. Throws Error(kWireFormat) unless the header names `parameter_id`,
// there are 1 to `max_clients` clients, and no more values than kMaxValueCount or flags than `known_flags`.
FrameHead take_head(FrameReader& reader, const Id& parameter_id, std::uint32_t known_flags,
                    std::uint32_t max_clients);
// Throws Error(kWireFormat) for ids that do not ascend.
std::vector<Id> take_frame_ids(FrameReader& reader, std::size_t clients);

void put_head(FrameWriter& writer, const Layout& layout, std::uint32_t scheme_flags, std::size_t clients);
void put_frame_ids(FrameWriter& writer, std::span<const Id> frame_ids);

}  // namespace shieldfl::scheme
