// Some ciphertexts at a time, from quantised values to the bytes that travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/random.h"
#include "common/secure_memory.h"
#include "paillier/keys.h"
#include "paillier/randomizer_pool.h"

namespace shieldfl::paillier {

// One for each thread. Refers to all it is given.
class BlockEncryption {
 public:
  // `pool` may be null.
  BlockEncryption(const PublicKey& key, const Seed& seed, RandomizerPool* pool, bool lookups_vartime);

  // Encrypts `fields`, values_per_ciphertext() for each ciphertext, into `out`, ciphertext_bytes() each.
  // `first` is the number of the first one, which no other ciphertext under this seed has: what the pool has
  // no randomisers for is made from the seed's streams of these numbers.
  void encrypt(std::uint64_t first, std::span<const std::int64_t> fields, std::span<std::uint8_t> out);

 private:
  const PublicKey& key_;
  const Seed& seed_;
  RandomizerPool* pool_;
  bool lookups_vartime_;
  SecretVector<std::uint64_t> plaintexts_;
  SecretVector<std::uint64_t> pairs_;
};

}  // namespace shieldfl::paillier
