// Clipping and discrete Gaussian noise on a grid of step 2^-fraction_bits: the form of the Gaussian mechanism
// whose privacy proof speaks of the very numbers that leave the client.
#pragma once

#include <cstddef>
#include <span>

#include "common/random.h"
#include "noise/clipping.h"
#include "noise/discrete_gaussian.h"

namespace shieldfl::noise {

// Clips `values`, rounds them to the grid (to nearest, ties to even), adds an independent draw of the
// discrete Gaussian in units of the grid, and writes the sums as doubles, which hold them exactly.
//
// The rounded vector's exact norm is at most `clip_norm`, so that this is the sensitivity to one client's
// vector. To that end values are clipped to B = clip_norm - sqrt(n) 2^-(fraction_bits + 1), a hair less for
// the rounding of the arithmetic: rounding n coordinates moves the vector by at most sqrt(n) half steps, and
// norms obey the triangle inequality. The result tells the norm of the input and whether it was longer than
// B.
//
// `variance` is in squared grid units. `noised` has the size of `values`. Block b of 4096 values reads stream
// b of one seed: the result does not depend on `threads` (0 means threads_for()). The time it takes depends
// on the noise.
//
// Throws Error: kParameter where measure_clipping and DiscreteGaussian do, when clip_norm 2^fraction_bits is
// above 2^50, and when sqrt(n) half steps are more than half of clip_norm; kRange when a value is NaN or
// infinite.
Clipping clip_and_add_discrete_gaussian_vartime(std::span<const float> values, std::span<double> noised,
                                                double clip_norm, unsigned fraction_bits,
                                                RationalVariance variance, SeedSource& seeds,
                                                std::size_t threads);

}  // namespace shieldfl::noise
