// Totals that an aggregator has altered, behind a right checksum. `View`: a scheme's CiphertextView.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "enrolled/ciphertext.h"
#include "tests/altered_frames.h"

namespace shieldfl::tests {

// A total with another head than it was summed with, so that only the secrets can tell.
template <typename View, typename Change>
Frame with_head(const View& total, Change change) {
  auto head = total.head;
  change(head);
  Frame frame(enrolled::ciphertext_frame_bytes(total.kind, head));
  FrameWriter writer = enrolled::begin_frame(total.kind, head, frame);
  writer.put_bytes(total.payload);
  writer.finish();
  return frame;
}

// A total with other ciphertexts.
template <typename View>
Frame with_payload(const View& total, const std::function<void(std::span<std::uint8_t>)>& change) {
  Frame frame(total.frame.begin(), total.frame.end());
  const auto at = static_cast<std::size_t>(total.payload.data() - total.frame.data());
  change(std::span(frame).subspan(at, total.payload.size()));
  reseal(frame);
  return frame;
}

// A total in which the words of each block are changed by change(words, block).
template <typename View>
Frame with_words(const View& total,
                 const std::function<void(std::span<std::uint64_t>, std::size_t)>& change) {
  const std::size_t bytes = total.format.bytes();
  std::vector<std::uint64_t> words(total.format.words());
  return with_payload(total, [&](std::span<std::uint8_t> payload) {
    for (std::size_t block = 0; block * bytes < payload.size(); ++block) {
      const auto packed = payload.subspan(block * bytes, bytes);
      total.format.unpack(packed, words);
      change(words, block);
      total.format.pack(words, packed);
    }
  });
}

}  // namespace shieldfl::tests
