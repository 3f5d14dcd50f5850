// Frames of packed ciphertexts, whatever the scheme, with damage in the ciphertexts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "packed/block_format.h"
#include "ring/bit_packing.h"
#include "tests/altered_frames.h"

namespace shieldfl::tests {

// Where one packed number lies.
struct PackedPlace {
  std::size_t block;
  std::size_t row;
  std::size_t index;
};

// A copy of the frame in which the packed number there is `field`, and all its bits as `field` has them; the
// checksum is left as it was. `View`: a scheme's CiphertextView.
template <typename View>
Frame with_packed(const View& view, PackedPlace place, std::uint64_t field) {
  const std::size_t degree = view.format.words() / view.format.rows().size();
  Frame frame(view.frame.begin(), view.frame.end());
  std::size_t byte =
      static_cast<std::size_t>(view.payload.data() - view.frame.data()) + place.block * view.format.bytes();
  for (std::size_t row = 0; row < place.row; ++row) {
    byte += ring::packed_bytes(degree, view.format.rows()[row].width.bits);
  }
  const unsigned bits = view.format.rows()[place.row].width.bits;
  for (unsigned bit = 0; bit < bits; ++bit) {
    const std::size_t at = place.index * bits + bit;
    const auto mask = static_cast<std::uint8_t>(1U << at % 8);
    std::uint8_t& there = frame[byte + at / 8];
    there = static_cast<std::uint8_t>((field >> bit & 1) != 0 ? there | mask : there & ~mask);
  }
  return frame;
}

// What can be found out only when most of the frame has been added, or all of it: a byte of the first and of
// the last ciphertext, the checksum itself, and words above their modulus behind a right checksum, where
// there are such words.
template <typename View>
std::vector<Frame> damaged(const View& view) {
  const Frame frame(view.frame.begin(), view.frame.end());
  const auto payload = static_cast<std::size_t>(view.payload.data() - view.frame.data());
  const std::size_t blocks = view.payload.size() / view.format.bytes();
  const std::size_t rows = view.format.rows().size();
  std::vector<Frame> frames;
  for (const std::size_t at : {payload, payload + view.payload.size() - 1, frame.size() - 1}) {
    frames.push_back(frame);
    frames.back()[at] ^= 0x40;
  }
  for (const std::size_t block : {std::size_t{0}, blocks / 2, blocks - 1}) {
    for (const std::size_t row : {std::size_t{0}, rows - 1}) {
      const packed::RowFormat& format = view.format.rows()[row];
      if (format.modulus == std::uint64_t{1} << format.width.bits) continue;
      frames.push_back(with_packed(view, {block, row, view.format.words() / rows - 1}, ~std::uint64_t{0}));
      reseal(frames.back());
    }
  }
  return frames;
}

}  // namespace shieldfl::tests
