// Sums of a ciphertext's mixed-radix digits (see ciphertext.h), carried and brought back to digits.
#pragma once

#include <cstdint>
#include <span>

#include "ckks/parameters.h"

namespace shieldfl::ckks {

// `sums`: the rows of one ciphertext, each entry a sum of digits below 2^63. With two primes what digit0 has
// above q0 goes on to digit1. In place; for public values: the running time may tell them.
void reduce_digits(const ParameterFacts& facts, std::span<std::uint64_t> sums);

}  // namespace shieldfl::ckks
