#include "scheme/frame_head.h"

#include <algorithm>
#include <functional>

#include "common/error.h"

namespace shieldfl::scheme {

FrameHead take_head(FrameReader& reader, const Id& parameter_id, std::uint32_t known_flags,
                    std::uint32_t max_clients) {
  FrameHead head{};
  Layout& layout = head.layout;
  layout.parameter_id = reader.header().parameter_id;
  layout.key_id = reader.header().key_id;
  if (layout.parameter_id != parameter_id) {
    fail_wire_format("the frame's parameter id is not that of its parameters: it was altered");
  }
  layout.round = reader.take<std::uint64_t>();
  layout.mask_id = reader.take_id();
  layout.value_count = reader.take<std::uint64_t>();
  head.flags = reader.take<std::uint32_t>();
  head.clients = reader.take<std::uint32_t>();
  layout.weighted = (head.flags & kWeightedFlag) != 0;
  if (layout.value_count > kMaxValueCount || (head.flags & ~known_flags) != 0) {
    fail_wire_format("the frame states values that no frame has: it was altered");
  }
  if (head.clients < 1 || head.clients > max_clients) {
    fail_wire_format("the frame states a number of clients that its parameters do not allow: it was altered");
  }
  return head;
}

std::vector<Id> take_frame_ids(FrameReader& reader, std::size_t clients) {
  const auto bytes = reader.take_bytes(clients * sizeof(Id));
  std::vector<Id> ids(clients);
  for (std::size_t i = 0; i < clients; ++i)
    std::copy_n(bytes.data() + i * sizeof(Id), sizeof(Id), ids[i].data());
  if (std::ranges::adjacent_find(ids, std::greater_equal<>()) != ids.end()) {
    fail_wire_format("the total names the same batch twice, or its batches out of order: it was altered");
  }
  return ids;
}

void put_head(FrameWriter& writer, const Layout& layout, std::uint32_t scheme_flags, std::size_t clients) {
  writer.put(layout.round);
  writer.put_bytes(layout.mask_id);
  writer.put(layout.value_count);
  writer.put((layout.weighted ? kWeightedFlag : 0) | scheme_flags);
  writer.put(static_cast<std::uint32_t>(clients));
}

void put_frame_ids(FrameWriter& writer, std::span<const Id> frame_ids) {
  for (const Id& id : frame_ids) writer.put_bytes(id);
}

}  // namespace shieldfl::scheme
