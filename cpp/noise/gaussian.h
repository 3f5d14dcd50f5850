// Gaussian noise for differential privacy, driven by the cryptographic generator.
//
// Draws are formed in double precision from 2^52 radii and 2^28 directions, added to the value in double
// precision and rounded once to float: see noise_kernels.h for the transform and its error. Like all
// floating-point noise it is not the real Gaussian that privacy proofs speak of (Mironov 2012): see
// discrete_gaussian.h for noise that is.
//
// Block b of 4096 values reads stream b of one fresh seed, so that the result depends neither on the number
// of threads (0 means threads_for()) nor on the instruction set.
#pragma once

#include <cstddef>
#include <span>

#include "common/random.h"
#include "noise/clipping.h"

namespace shieldfl::noise {

// `values[i]` += a draw from N(0, standard_deviation^2); 0 draws nothing. Values are not checked.
// Throws Error(kParameter) when standard_deviation is negative or not finite.
void add_gaussian(std::span<float> values, double standard_deviation, SeedSource& seeds, std::size_t threads);

// Clipping and noise in two passes: `noised[i]` = values[i] * factor + a draw from N(0,
// standard_deviation^2), with the factor of measure_clipping. The product is not rounded before the noise is
// added, so what the noise covers has an exact norm of at most `clip_norm` where the input was longer.
// `noised` has the size of `values` and may be the same memory. Throws what measure_clipping and add_gaussian
// throw, and then has written nothing.
Clipping clip_and_add_gaussian(std::span<const float> values, std::span<float> noised, double clip_norm,
                               double standard_deviation, SeedSource& seeds, std::size_t threads);

// Two independent draws from N(0, 1), by the C library's functions. For few draws.
struct GaussianPair {
  double first;
  double second;
};
GaussianPair standard_gaussian_pair(RandomStream& stream);

}  // namespace shieldfl::noise
