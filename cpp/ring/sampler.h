// The two distributions of RLWE encryption, drawn exactly, without secret-dependent branches or addresses.
//
// The order in which bits become samples is part of the contract: every kernel and the reference in Python
// must give the same samples for the same stream.
#pragma once

#include <cstdint>
#include <span>

#include "common/random.h"
#include "ring/sampler_kernels.h"

namespace shieldfl::ring {

// Of the centred binomial with kErrorCoins coins on each side: mean 0, |x| <= kErrorCoins; SEAL's error
// distribution.
inline constexpr double kErrorVariance = kErrorCoins / 2.0;

// Uniform over {-1, 0, 1}. Takes words a, b in turn from the stream; bit i of the pair proposes a_i - b_i and
// is passed over when both are 1. What is rejected says nothing about what is kept. The words of the last
// pair count as read when `out` is full before its end.
void sample_ternary(RandomStream& stream, std::span<std::int8_t> out);

// Centred binomial. Takes 16 words w_0 ... w_15 for 24 samples, the last of which may be left out: sample 8 j
// + i (j < 3, i < 8) is popcount(bits 21 j to 21 j + 20 of w_i) - popcount(the same bits of w_(8 + i)).
void sample_error(RandomStream& stream, std::span<std::int8_t> out);

// The same with the kernels of a given instruction set.
void sample_ternary_with(const SamplerKernels& kernels, RandomStream& stream, std::span<std::int8_t> out);
void sample_error_with(const SamplerKernels& kernels, RandomStream& stream, std::span<std::int8_t> out);

}  // namespace shieldfl::ring
