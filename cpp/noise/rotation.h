// A public random rotation, which spreads a vector's norm over all of its coordinates: so rounding to a
// coarse grid costs little, and few coordinates reach the bounds of a modular sum (Kairouz, Liu and Steinke,
// "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation", 2021, section
// 4; Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated Learning", 2021).
//
// H is the Walsh-Hadamard transform of 2^k values divided by 2^(k/2), and D a diagonal of random signs. With
// the largest 2^k <= n for n values, H D_0 is applied to the first 2^k values and then H D_1 to the last 2^k.
// Each is orthonormal on what it covers, which together is everything; so the product is, without padding.
// Over the signs, for whoever has chosen the vector x before them, every coordinate of the result is
// sub-Gaussian with variance proxy |x|^2 / 2^k, which is below 2 |x|^2 / n. (A coordinate in the last 2^k is
// a sum of independent signs times values whose squares sum to |x|^2 / 2^k at most; one before them is that
// of the first transform.)
//
// The sign of position i of transform t is bit i of random stream t of the seed: 1 for minus. Nothing depends
// on threads (0 means threads_for()) or the instruction set.
#pragma once

#include <cstddef>
#include <span>

#include "common/random.h"

namespace shieldfl::noise {

// rotated = rotation(values * factor); the products are rounded once, from double. `rotated` has the size of
// `values` and may be the same memory. For float and double.
template <typename T>
void rotate(std::span<const T> values, std::span<T> rotated, const Seed& public_seed, double factor,
            std::size_t threads);

// The inverse, up to rounding: values = inverse rotation(rotated * factor).
template <typename T>
void rotate_back(std::span<const T> rotated, std::span<T> values, const Seed& public_seed, double factor,
                 std::size_t threads);

}  // namespace shieldfl::noise
