// 128-bit identifiers of parameters, keys and masks: BLAKE2b (RFC 7693), as SEAL ships it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace shieldfl {

using Id = std::array<std::uint8_t, 16>;

// BLAKE2b with a digest of 16 bytes and a key of at most 64 (none by default).
Id digest(std::span<const std::uint8_t> data, std::span<const std::uint8_t> key = {});

}  // namespace shieldfl
