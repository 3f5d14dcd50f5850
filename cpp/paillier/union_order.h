// The positions that any client of a group protects, in the order in which they are packed: most popular
// first, so that what a client with few positions selected falls into few ciphertexts. Within a popularity
// positions ascend.
//
// This is how clients with different masks share packed ciphertexts: all pack in this one index space, a
// client puts zero where it did not select, and leaves out ciphertexts that would be all zero.
//
// A frame of kind kUnionOrder, with parameter id and key id zero, has this body:
//
//   bytes  field
//   8      mask_bytes
//   ...    mask_bytes: the union of the masks, a mask frame (mask/mask_codec.h)
//   4      levels: the number of ascending runs that the order consists of
//   ...    the run of each position of the union, in ascending order of position, from 0 on: bit_width(levels
//   - 1)
//          bits each, at least 1, low bits first; the last byte padded with zeros
//
// At least one bit, so that a short frame states few positions. There is exactly one frame for every order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/digest.h"
#include "mask/bitset.h"

namespace shieldfl::paillier {

class UnionOrder {
 public:
  // Throws Error(kParameter) for no masks, or masks of different sizes. `threads`: 0 means all cores.
  static UnionOrder from_masks(std::span<const mask::Bitset* const> masks, std::size_t threads = 0);

  [[nodiscard]] std::uint64_t size() const { return size_; }  // positions of the update
  [[nodiscard]] std::span<const std::uint32_t> positions() const { return positions_; }  // in packing order
  [[nodiscard]] const Id& id() const { return id_; }  // digest of size and positions

  // Whether each ciphertext of `capacity` fields holds a position of `mask`. Throws Error(kParameter) for a
  // mask of another size or with a position outside of the union.
  [[nodiscard]] mask::Bitset blocks_of(const mask::Bitset& mask, std::size_t capacity) const;

  [[nodiscard]] std::vector<std::uint8_t> to_frame() const;
  // Throws Error(kWireFormat) for bytes that to_frame does not produce, or whose size is not `expected_size`
  // where that is given. Without it a short frame may ask for 256 MiB, as a mask may.
  static UnionOrder from_frame(std::span<const std::uint8_t> frame,
                               std::optional<std::uint64_t> expected_size = std::nullopt);

 private:
  UnionOrder(std::uint64_t size, std::vector<std::uint32_t> positions);

  std::uint64_t size_;
  std::vector<std::uint32_t> positions_;
  Id id_;
};

}  // namespace shieldfl::paillier
