// What hides a plaintext: random n-th powers modulo n^2, of the kind that the parameters name.
#pragma once

#include <cstdint>
#include <span>

#include "common/random.h"
#include "paillier/keys.h"

namespace shieldfl::paillier {

// Makes the key's table, where there is to be one and there is none yet: threads that need it at the same
// time would each make it.
void prepare_randomizers(const PublicKey& key);

// How many one call should make: more are not faster, and whoever waits for a call to end would wait for
// longer.
std::size_t randomizers_at_once(const PublicKey& key);

// pairs.size() / pair_words() fresh randomisers as pairs (engine.h): number i is made from stream first + i
// of `seed` alone, so that the result does not depend on how the work is divided. Single-threaded.
// `lookups_vartime`: as FixedBase::power_vartime.
void make_randomizers(const PublicKey& key, const Seed& seed, std::uint64_t first, bool lookups_vartime,
                      std::span<std::uint64_t> pairs);

}  // namespace shieldfl::paillier
