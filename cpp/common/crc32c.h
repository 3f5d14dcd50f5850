// CRC-32C (Castagnoli, RFC 3720 appendix B.4): finds damage in transit, proves nothing about the sender.
#pragma once

#include <cstdint>
#include <span>

namespace shieldfl {

// The checksum of `data`; pass an earlier result as `previous` to go on where it stopped.
std::uint32_t crc32c(std::span<const std::uint8_t> data, std::uint32_t previous = 0);

}  // namespace shieldfl
