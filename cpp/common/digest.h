// 128-bit identifiers of parameters, keys and masks: BLAKE2b, as SEAL ships it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace shieldfl {

using Id = std::array<std::uint8_t, 16>;

// The first 128 bits of BLAKE2b-256 over `data`, padded with zeros to whole words and followed by its length.
Id digest(std::span<const std::uint8_t> data);

}  // namespace shieldfl
