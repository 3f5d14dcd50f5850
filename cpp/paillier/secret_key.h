// What the key authority alone holds of a key pair: the factors of n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/secure_memory.h"
#include "paillier/engine.h"
#include "paillier/public_key.h"
#include "paillier/secret_modulus.h"

namespace shieldfl::paillier {

// Not copyable; wiped on destruction.
class SecretKey {
 public:
  // `factors`: p and then q, modulus_words() / 2 words each. Throws Error(kKeyMismatch) unless their product
  // is the public key's n; Error(kParameter) unless they are prime (a composite passes with probability
  // 2^-112), at least 2^(key_bits / 2 - 100) apart and, where exponents are short, safe primes, which short
  // exponents rely on. For classical randomisers any primes will do, so that keys of other libraries can be
  // used. Constant-time in the factors, but for what an error says, for how often 2 divides p - 1 and q - 1,
  // and (p - 1) / 2 - 1 and (q - 1) / 2 - 1 where exponents are short, and for the lengths of p^2 and q^2 in
  // bits.
  SecretKey(const PublicKey& public_key, SecretVector<std::uint64_t> factors);
  SecretKey(const SecretKey&) = delete;
  SecretKey& operator=(const SecretKey&) = delete;
  ~SecretKey() = default;

  [[nodiscard]] const Parameters& parameters() const { return parameters_; }
  [[nodiscard]] const Id& key_id() const { return key_id_; }

  // The plaintexts of ciphertexts: residues below n^2 (ciphertext_words() each) become integers below n
  // (modulus_words() each). Constant-time in the key and in the plaintexts; single-threaded.
  void decrypt(std::span<const std::uint64_t> residues, std::span<std::uint64_t> plaintexts) const;
  // How many residues one call should have, or a multiple: the lanes of the widest engine. A power takes so
  // long that larger batches win nothing, and smaller ones leave work for more threads.
  static constexpr std::size_t kBatchSize = 8;

  // p and q, big-endian: what is stored, under encryption, for a restart.
  [[nodiscard]] SecretVector<std::uint8_t> export_secret() const;
  // Throws as the constructor does; Error(kKeyMismatch) for another number of bytes.
  static std::shared_ptr<const SecretKey> import_secret(const PublicKey& public_key,
                                                        std::span<const std::uint8_t> exported);

 private:
  struct Factor {
    Factor(EngineKind kind, std::span<const std::uint64_t> factor);

    SecretModulus prime;
    SecretModulus square;
    std::shared_ptr<const Engine> engine;       // modulo the square
    SecretVector<std::uint64_t> prime_minus_1;  // the exponent
  };

  void check_factors() const;

  Parameters parameters_;
  Id key_id_;
  SecretVector<std::uint64_t> factors_;  // p and then q
  Factor p_;
  Factor q_;
  // What the halves of a plaintext are put together with, times R = 2^(64 * prime.words()).
  SecretVector<std::uint64_t> from_q_;           // -(p^-1) modulo q
  SecretVector<std::uint64_t> quotient_from_q_;  // -(q^-1) modulo p
  SecretVector<std::uint64_t> quotient_from_p_;  // -(q^-2) modulo p
};

}  // namespace shieldfl::paillier
