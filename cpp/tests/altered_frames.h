// Frames that were altered on purpose, with an envelope that fits: length and checksum are made right again,
// so that the parser behind them is reached.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/crc32c.h"
#include "common/wire.h"

namespace shieldfl::tests {

using Frame = std::vector<std::uint8_t>;

// Recomputes the length field and the checksum of a frame, if it is long enough to have them.
inline void reseal(Frame& frame) {
  if (frame.size() < kFrameHeaderBytes + kFrameTrailerBytes) return;
  const std::uint64_t body = frame.size() - kFrameHeaderBytes - kFrameTrailerBytes;
  std::memcpy(frame.data() + 8, &body, sizeof body);
  const std::size_t covered = frame.size() - kFrameTrailerBytes;
  const std::uint32_t checksum = crc32c(std::span(frame).first(covered));
  std::memcpy(frame.data() + covered, &checksum, sizeof checksum);
}

// A copy with `value` written over the bytes from `offset` on, and the envelope made right.
template <typename T>
Frame with_field(Frame frame, std::size_t offset, T value) {
  std::memcpy(frame.data() + offset, &value, sizeof value);
  reseal(frame);
  return frame;
}

template <typename T>
T field_at(const Frame& frame, std::size_t offset) {
  T value;
  std::memcpy(&value, frame.data() + offset, sizeof value);
  return value;
}

}  // namespace shieldfl::tests
