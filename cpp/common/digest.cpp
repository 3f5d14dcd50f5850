#include "common/digest.h"

#include <seal/util/blake2.h>

#include "common/error.h"

namespace shieldfl {

Id digest(std::span<const std::uint8_t> data, std::span<const std::uint8_t> key) {
  Id id;
  if (blake2b(id.data(), id.size(), data.data(), data.size(), key.data(), key.size()) != 0) {
    throw Error(ErrorCode::kInternal, "BLAKE2b refused its input");
  }
  return id;
}

}  // namespace shieldfl
