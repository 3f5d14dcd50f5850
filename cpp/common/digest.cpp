#include "common/digest.h"

#include <seal/util/blake2.h>

#include <cstring>

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

Digest node_digest(const Blake2bParameters& parameters, std::span<const std::uint8_t> data, bool last) {
  blake2b_param encoded;
  static_assert(sizeof encoded == sizeof parameters);
  std::memcpy(&encoded, parameters.data(), sizeof encoded);
  blake2b_state state;
  Digest bytes;
  bool done = blake2b_init_param(&state, &encoded) == 0;
  state.last_node = last ? 1 : 0;
  done = done && blake2b_update(&state, data.data(), data.size()) == 0 &&
         blake2b_final(&state, bytes.data(), bytes.size()) == 0;
  if (!done) throw Error(ErrorCode::kInternal, "BLAKE2b refused its input");
  return bytes;
}

}  // namespace shieldfl
