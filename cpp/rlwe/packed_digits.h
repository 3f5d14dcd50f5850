// Polynomials as they travel, and sums of them: digits in packed blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "packed/block_format.h"
#include "packed/packed_sums.h"
#include "rlwe/digits.h"

namespace shieldfl::rlwe {

// Below it, primes that are 1 modulo twice the degree run out.
inline constexpr int kMinPrimeBits = 20;
// Lazy NTT arithmetic in 52-bit lanes wants four times the prime to fit.
inline constexpr int kMaxPrimeBits = 50;
// Fewer than the bits of any prime, so that something of each coefficient travels.
inline constexpr unsigned kMaxDroppedBits = 16;

// What a thread must have to encrypt or open before it is worth its start, see threads_for(): where the
// processor has AVX-512, a ciphertext takes some 25 us.
inline constexpr std::size_t kBlocksWorthEncrypting = 16;

// Packs the residues of one ciphertext's polynomials, which become digits on the way.
void pack_residues(const DigitBasis& digits, const packed::BlockFormat& format,
                   std::span<std::uint64_t> residues, std::span<std::uint8_t> block);

// Sums of ciphertexts of so many polynomials. `threads`: as for threads_for().
packed::PackedSums digit_sums(const DigitBasis& digits, std::size_t polynomials, std::size_t threads);

}  // namespace shieldfl::rlwe
