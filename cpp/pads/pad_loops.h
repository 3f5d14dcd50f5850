// The loops of pad_kernels.h, which compilers turn into vectors of whatever width the including file has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/verify.h"

namespace shieldfl::pads {
namespace {

void add_short_pads(const std::uint64_t* in, const std::uint64_t* stream, std::size_t count,
                    std::uint64_t mask, std::uint64_t* out) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(stream);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t pad;
    __builtin_memcpy(&pad, bytes + i * sizeof pad, sizeof pad);
    out[i] = (in[i] + pad) & mask;
  }
}

void add_long_pads(const std::uint64_t* in, const std::uint64_t* stream, std::size_t count,
                   std::uint64_t mask, std::uint64_t* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = (in[i] + stream[i]) & mask;
}

std::uint64_t take_sums(const std::uint64_t* words, const std::uint64_t* pads, std::size_t count,
                        unsigned field_bits, std::uint64_t max_sum, double unit, double* out) {
  VERIFY(2 <= field_bits && field_bits <= 54 && max_sum < std::uint64_t{1} << 53);
  const unsigned shift = 64 - field_bits;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto sum = static_cast<std::int64_t>((words[i] - pads[i]) << shift) >> shift;
    out[i] = static_cast<double>(sum) * unit;
    // Both are below 2^54 in magnitude, so that a difference below zero has its top bit set.
    wrong |= (max_sum + static_cast<std::uint64_t>(sum)) | (max_sum - static_cast<std::uint64_t>(sum));
  }
  return wrong >> 63;
}

}  // namespace
}  // namespace shieldfl::pads
