// Products of secret numbers: GMP's product for secrets, and Karatsuba's step over it where that is faster.
// Branches and addresses depend on lengths alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl::paillier {

// Scratch words of secret_product.
std::size_t secret_product_scratch_words(std::size_t words);

// product (2 * words) = left * right (`words` each). Operands may be the same; neither overlaps product or
// scratch.
void secret_product(std::uint64_t* product, const std::uint64_t* left, const std::uint64_t* right,
                    std::size_t words, std::uint64_t* scratch);

}  // namespace shieldfl::paillier
