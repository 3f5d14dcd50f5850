#include "common/digest.h"

#include <seal/util/blake2.h>

#include "common/error.h"
#include "common/secure_memory.h"

namespace shieldfl {
namespace {

template <typename Bytes>
Bytes blake2b_of(std::span<const std::uint8_t> data, std::span<const std::uint8_t> key) {
  Bytes bytes;
  if (blake2b(bytes.data(), bytes.size(), data.data(), data.size(), key.data(), key.size()) != 0) {
    throw Error(ErrorCode::kInternal, "BLAKE2b refused its input");
  }
  // SEAL's code leaves its state behind, and with it keys that are made of keys.
  if (!key.empty()) secure_wipe_stack();
  return bytes;
}

}  // namespace

Id digest(std::span<const std::uint8_t> data, std::span<const std::uint8_t> key) {
  return blake2b_of<Id>(data, key);
}

Digest long_digest(std::span<const std::uint8_t> data, std::span<const std::uint8_t> key) {
  return blake2b_of<Digest>(data, key);
}

}  // namespace shieldfl
