// Whose, which round's and which positions' values a batch or a total holds, whatever the scheme.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/digest.h"
#include "mask/bitset.h"

namespace shieldfl::scheme {

// What must be equal for two batches to be summed.
struct Layout {
  Id parameter_id{};
  Id key_id{};
  std::uint64_t round = 0;
  Id mask_id{};  // which positions the values belong to
  std::uint64_t value_count = 0;
  bool weighted = false;  // one value more follows: the client's weight

  [[nodiscard]] std::uint64_t field_count() const { return value_count + (weighted ? 1 : 0); }
  // Ciphertexts of so many fields each that hold them.
  [[nodiscard]] std::size_t block_count(std::size_t fields_per_block) const {
    return (field_count() + fields_per_block - 1) / fields_per_block;
  }
  bool operator==(const Layout&) const = default;
};

// The most values that a frame may state: with more, sizes in bytes could overflow.
inline constexpr std::uint64_t kMaxValueCount = std::uint64_t{1} << 40;

// The identifier of a set of positions: equal for a full mask and for none.
Id mask_id(std::uint64_t size, const mask::Bitset* mask);

}  // namespace shieldfl::scheme
