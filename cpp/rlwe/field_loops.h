// The loops of field_kernels.h, which compilers turn into vectors of whatever width the including file has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/verify.h"
#include "rlwe/field_kernels.h"

namespace shieldfl::rlwe {
namespace {

// One coefficient after the other: products of 128 bits have no vectors.
[[maybe_unused]] void read_messages(const MessageRounding& rounding, const std::uint64_t* digit0,
                                    const std::uint64_t* digit1, std::size_t count,
                                    std::uint64_t* __restrict__ low, std::uint64_t* __restrict__ high) {
  using ring::Int128;
  VERIFY(1 <= rounding.shift && rounding.shift < 64);
  for (std::size_t i = 0; i < count; ++i) {
    Int128 message = digit0[i];
    if (digit1 != nullptr) {
      message += static_cast<Int128>(static_cast<ring::UInt128>(rounding.q0) * digit1[i]);
    }
    message -= rounding.modulus & ((rounding.most - message) >> 127);  // the noise decides: no branch
    const Int128 packed = (message + rounding.added) >> rounding.shift;
    low[i] = static_cast<std::uint64_t>(packed);
    high[i] = static_cast<std::uint64_t>(packed >> 64);
  }
}

// Takes the lowest field off packed number i and returns its sum, modulo 2^64.
inline std::uint64_t take_field(std::uint64_t& low, std::uint64_t& high, unsigned field_bits) {
  VERIFY(2 <= field_bits && field_bits <= 54);
  const std::uint64_t bias = std::uint64_t{1} << (field_bits - 1);
  const std::uint64_t sum = (low & (2 * bias - 1)) - bias;
  low = (low >> field_bits) | (high << (64 - field_bits));
  // An arithmetic shift, so that a number below zero stays one and is found out in the end.
  high = static_cast<std::uint64_t>(static_cast<std::int64_t>(high) >> field_bits);
  return sum;
}

std::uint64_t take_sums(std::uint64_t* __restrict__ low, std::uint64_t* __restrict__ high, std::size_t count,
                        unsigned field_bits, std::uint64_t max_sum, double unit, double* __restrict__ out) {
  VERIFY(max_sum < std::uint64_t{1} << 54);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t sum = take_field(low[i], high[i], field_bits);
    out[i] = static_cast<double>(static_cast<std::int64_t>(sum)) * unit;
    // Both are below 2^54, so that a difference below zero has its top bit set.
    wrong |= (max_sum + sum) | (max_sum - sum);
  }
  return wrong >> 63;
}

std::uint64_t take_zeros(std::uint64_t* __restrict__ low, std::uint64_t* __restrict__ high, std::size_t count,
                         unsigned field_bits) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong |= take_field(low[i], high[i], field_bits);
  return wrong;
}

}  // namespace
}  // namespace shieldfl::rlwe
