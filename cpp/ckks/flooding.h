// Noise that hides what approximate decryption would tell about the key (IND-CPA-D).
#pragma once

#include <cstdint>
#include <span>

#include "ckks/ciphertext.h"
#include "ckks/keys.h"

namespace shieldfl::ckks {

// The seed of a total's flooding noise: a keyed digest of what is opened, which is the ciphertexts and,
// through the correction for dropped bits, the number of clients.
Seed flooding_seed_for(const SecretKey& key, const CiphertextView& total);

// Adds round(N(0, 2^(2 log2_flooding))) to every coefficient, the same integer modulo each prime.
void add_flooding(const ParameterFacts& facts, const Seed& seed, std::size_t block,
                  std::span<std::uint64_t> rows);

}  // namespace shieldfl::ckks
