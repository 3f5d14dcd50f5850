// A client's share of the noise on a sum that only the sum's reader sees: what it sends instead of its
// update.
//
// Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
// Aggregation" (2021), algorithm 1; Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially
// Private Federated Learning" (2021). An update is clipped, rotated, scaled, rounded to integers at random
// and noised. What the privacy proof needs of all that comes before the noise is that the integer vector's
// norm is bounded: this is checked in integers, and does not rest on the accuracy of any floating-point step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/random.h"
#include "noise/clipping.h"
#include "noise/noise_table.h"

namespace shieldfl::noise {

// How often rounding is drawn before it is given up.
inline constexpr unsigned kMostRoundings = 1000;

// The most steps that a clipping norm may have, and the most that it may be itself. So no sum of the rotation
// leaves the range of floats, and with a norm that rounding of floats makes a little longer, but by far not
// twice as long, every rotated value is below kMostRounded steps.
inline constexpr double kMostNormSteps = 0x1p28;
inline constexpr double kMostClipNorm = 0x1p100;

struct ShareBounds {
  double clip_norm;
  double steps_per_unit;             // grid steps for 1 of the update
  std::uint64_t norm_bound_squared;  // of the rounded vector, in squared steps
  std::int32_t most_rounded;         // what rounded values are brought within
  std::int32_t most_sent;            // what the sums of values and noise are brought within
};

struct ShareFacts {
  Clipping clipping;
  unsigned roundings;  // how often rounding was drawn
};

// Writes a share of `update` to `share`, which has its size:
// 1. `update` times the factor of measure_clipping, rotated (rotation.h), times steps_per_unit;
// 2. rounded as share_kernels.h says, with fresh randomness again and again until the squared norm of the
//    rounded vector, exactly, is norm_bound_squared at most;
// 3. each value brought within -most_rounded and most_rounded, a draw from `table` added, and the sum brought
//    within -most_sent and most_sent.
//
// Each time anew a seed is drawn for rounding and one for the noise, which are made in one pass: the noise on
// a rounding that is too long is thrown away with it. Block b of 4096 values reads stream b of either seed,
// so that the share does not depend on `threads` (0 means threads_for()). What a cache sees depends on the
// noise (noise_table.h), and how often rounding was drawn depends on the update.
//
// The memory of `share` holds the rotated update meanwhile; it is wiped where an Error is thrown after that.
// Throws Error: kParameter where measure_clipping does, when steps_per_unit is not positive and finite, when
// the clipping norm is above kMostClipNorm or has more than kMostNormSteps steps, and when a most_ is below 1
// or most_rounded above 2^30; kRange when a value is NaN or infinite, and when kMostRoundings roundings were
// all too long.
ShareFacts noise_share_vartime(std::span<const float> update, std::span<std::int32_t> share,
                               const ShareBounds& bounds, const Seed& rotation_seed, const NoiseTable& table,
                               SeedSource& seeds, std::size_t threads);

}  // namespace shieldfl::noise
