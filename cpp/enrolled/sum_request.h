// What an aggregator asks an authority for: the head of a total, and a digest of its frame that binds the
// answer to it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "enrolled/ciphertext.h"

namespace shieldfl::enrolled {

template <typename Scheme>
struct SumRequest {
  using Head = FrameHead<typename Scheme::Facts>;

  Head head;
  Digest total_digest{};

  // Throws Error(kPolicy) for a batch.
  static SumRequest of_total(const CiphertextView<Scheme>& total, const Digest& total_digest) {
    check_is_total(total);
    return {total.head, total_digest};
  }

  [[nodiscard]] std::vector<std::uint8_t> to_frame() const {
    FrameWriter writer({Scheme::kKinds.sum_request, head.layout.parameter_id, head.layout.key_id},
                       head.bytes() + total_digest.size());
    head.put(writer);
    writer.put_bytes(total_digest);
    return writer.finish();
  }

  // Throws Error(kWireFormat).
  static SumRequest from_frame(std::span<const std::uint8_t> frame) {
    FrameReader reader(frame, Scheme::kKinds.sum_request);
    SumRequest request{Head::read(reader, scheme::kMaxClients), {}};
    std::ranges::copy(reader.take_bytes(request.total_digest.size()), request.total_digest.begin());
    reader.expect_end();
    return request;
  }
};

}  // namespace shieldfl::enrolled
