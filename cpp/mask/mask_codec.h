// Masks on the wire: frames of kind kMask, with parameter id and key id zero.
//
//   bytes  field
//   8      size: the number of positions
//   8      count: how many of them are chosen
//   1      encoding (MaskEncoding)
//   1      log2_divisor of the Rice codes; 0 for a bitmap
//   ...    payload: to the end of the body
//
// Encoding and divisor follow from size and count alone: the bitmap, or the gaps of the smaller one of the
// set and its complement, whichever is the shorter in its worst case (a bitmap where they are equal). So no
// mask takes more than its bitmap, and there is exactly one frame for every mask: the reader refuses any
// other. A random mask takes at most 9 % above its entropy, the frame's header aside: 0.4 % at a density of
// 1 %, 1.4 % at 10 %, the most where a third is chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mask/bitset.h"

namespace shieldfl::mask {

enum class MaskEncoding : std::uint8_t {
  kBitmap = 0,          // one bit per position, low bit first; the last byte padded with zeros
  kRice = 1,            // gaps of the chosen positions (rice_code.h)
  kRiceComplement = 2,  // gaps of the others
};

// "bitmap", "Rice", "Rice of the complement".
const char* mask_encoding_name(MaskEncoding encoding);

// What a frame states before its payload.
struct MaskInfo {
  std::uint64_t size;
  std::uint64_t count;
  MaskEncoding encoding;
  unsigned log2_divisor;
  std::size_t payload_bytes;
};

std::vector<std::uint8_t> encode_mask(const Bitset& mask);

// Throws Error(kWireFormat) for bytes that encode_mask does not produce, or whose size is not `expected_size`
// where that is given. Allocates for the stated size only after it was checked; without an expected size, a
// short frame may state kMaxPositions and so ask for 256 MiB.
Bitset decode_mask(std::span<const std::uint8_t> frame,
                   std::optional<std::uint64_t> expected_size = std::nullopt);

// The same checks up to the payload, which is not read. For inspection.
MaskInfo inspect_mask(std::span<const std::uint8_t> frame);

}  // namespace shieldfl::mask
