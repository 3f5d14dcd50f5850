#include "scheme/layout.h"

namespace shieldfl::scheme {

Id mask_id(std::uint64_t size, const mask::Bitset* mask) {
  if (mask != nullptr) return mask->content_id();
  return digest({}, {reinterpret_cast<const std::uint8_t*>(&size), sizeof size});
}

}  // namespace shieldfl::scheme
