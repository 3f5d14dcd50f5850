// CRC-32C (Castagnoli, RFC 3720 appendix B.4): finds damage in transit, proves nothing about the sender.
#pragma once

#include <cstdint>
#include <span>

namespace shieldfl {

// The checksum of `data`; pass an earlier result as `previous` to go on where it stopped.
std::uint32_t crc32c(std::span<const std::uint8_t> data, std::uint32_t previous = 0);

// The checksum of A followed by B from those of A and of B, which has `second_length` bytes: threads can each
// take a part of the data.
std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_length);

}  // namespace shieldfl
