// Quantised values as plaintexts: signed fields of field_bits() bits each, the first value in the lowest, all
// added up to one integer; a negative one is represented by its difference from n.
#pragma once

#include <cstdint>
#include <span>

#include "paillier/parameters.h"

namespace shieldfl::paillier {

// Writes the plaintext of `values` (at most values_per_ciphertext(), each below 2^(field_bits() - 1) in
// magnitude, as any sum is) to `plaintext`, modulus_words() words, below n. Constant-time in the values.
void pack_values(const Parameters& parameters, std::span<const std::int64_t> values,
                 std::span<const std::uint64_t> modulus, std::span<std::uint64_t> plaintext);

// Takes the sums out of a plaintext, which is below n. False, with `sums` unspecified, when a field is above
// `total_weight` (at most max_total_weight()) * max_magnitude() in magnitude, or when more than these fields
// is there: such a total was not made of packed values. Constant-time in the plaintext.
[[nodiscard]] bool unpack_sums(const Parameters& parameters, std::span<const std::uint64_t> plaintext,
                               std::span<const std::uint64_t> modulus, std::uint64_t total_weight,
                               std::span<std::int64_t> sums);

}  // namespace shieldfl::paillier
