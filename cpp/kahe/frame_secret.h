// The one-time secret polynomials of a frame, and sums of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/random.h"
#include "common/secure_memory.h"
#include "kahe/parameters.h"
#include "ring/ntt.h"

namespace shieldfl::kahe {

// Of one coefficient of a secret or an error.
inline constexpr int kMaxSample = 42;

// Draws a secret or an error: the sum of kBinomials times ring::sample_error. `scratch`: of the same length,
// wiped by its owner. Constant-time.
void sample_small(RandomStream& stream, std::span<std::int8_t> out, std::span<std::int8_t> scratch);

// Draws secret polynomial number v of the frame whose seed this is (frame_seed()).
void sample_secret(const Seed& frame_seed, std::size_t v, std::span<std::int8_t> out,
                   std::span<std::int8_t> scratch);

// A secret polynomial, or a sum of some, made ready for products: a row for each prime. Its coefficients are
// below every prime in magnitude. Constant-time.
std::vector<ring::PreparedRow> prepare_secret(const Parameters& parameters,
                                              std::span<const std::int32_t> coefficients);

}  // namespace shieldfl::kahe
