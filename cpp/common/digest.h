// Identifiers of parameters, keys and masks, digests of what is signed, and keys from keys: BLAKE2b (RFC
// 7693), as SEAL ships it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/blake2b_kernels.h"

namespace shieldfl {

using Id = std::array<std::uint8_t, 16>;

// BLAKE2b with a digest of 16 bytes and a key of at most 64 (none by default).
Id digest(std::span<const std::uint8_t> data, std::span<const std::uint8_t> key = {});

using Digest = std::array<std::uint8_t, 32>;

// The same with 32 bytes. Constant-time in data and key.
Digest long_digest(std::span<const std::uint8_t> data, std::span<const std::uint8_t> key = {});

// The digest of one node of a tree, 32 bytes: parameters.digest_length, the lowest byte of word 0, says so.
// `last`: of its layer.
Digest node_digest(const Blake2bParameters& parameters, std::span<const std::uint8_t> data, bool last);

}  // namespace shieldfl
