// Key pairs and how they are made. The halves are different types, and only the decryptor takes a secret key.
#pragma once

#include <cstdint>
#include <memory>

#include "common/random.h"
#include "common/secure_memory.h"
#include "paillier/public_key.h"
#include "paillier/secret_key.h"

namespace shieldfl::paillier {

struct KeyPair {
  std::shared_ptr<const PublicKey> public_key;
  std::shared_ptr<const SecretKey> secret_key;
};

// A fresh pair of safe primes, searched for on two threads: seconds. Throws Error(kParameter) for parameters
// out of range.
KeyPair generate_keys(const Parameters& parameters, SeedSource& seeds, EngineKind engine);

// The pair of these primes, as secret_key.h takes them and with its errors; a fresh h where exponents are
// short.
KeyPair key_pair_of(const Parameters& parameters, SecretVector<std::uint64_t> factors, SeedSource& seeds,
                    EngineKind engine);

}  // namespace shieldfl::paillier
