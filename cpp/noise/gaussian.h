// Gaussian noise for differential privacy, driven by the cryptographic generator.
#pragma once

#include <cstddef>
#include <span>

#include "common/random.h"

namespace shieldfl::noise {

// `out[i]` += a draw from N(0, standard_deviation^2), by the Box-Muller transform in double precision.
// Precondition, checked (Error kParameter): standard_deviation is finite and not negative; 0 draws nothing.
// `threads`: 0 means all cores. Blocks of 4096 values read one stream each, so the result does not depend on
// the number of threads. The low bits of floating-point noise are not perfectly Gaussian (Mironov 2012): see
// docs/threat-model.md.
void add_gaussian(std::span<float> out, double standard_deviation, SeedSource& seeds, std::size_t threads);

// Two independent draws from N(0, 1).
struct GaussianPair {
  double first;
  double second;
};
GaussianPair standard_gaussian_pair(RandomStream& stream);

}  // namespace shieldfl::noise
