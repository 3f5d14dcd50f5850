// The two halves of a key pair. They are different types, and only the decryptor takes a secret key.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ckks/parameters.h"
#include "common/random.h"
#include "common/secure_memory.h"
#include "ring/ntt.h"

namespace shieldfl::ckks {

class PublicKey {
 public:
  // `rows0` and `rows1`: -(a s + e) and a in NTT form, one row of degree residues for each prime.
  PublicKey(ParametersPointer parameters, std::vector<std::uint64_t> rows0, std::vector<std::uint64_t> rows1);

  [[nodiscard]] const ParametersPointer& parameters() const { return parameters_; }
  [[nodiscard]] const Id& id() const { return id_; }  // the digest of the residues
  // Both halves in NTT form, a row of degree residues for each prime.
  [[nodiscard]] std::span<const std::uint64_t> rows0() const { return rows0_; }
  [[nodiscard]] std::span<const std::uint64_t> rows1() const { return rows1_; }
  // The same, for products: entry p is the row for prime p.
  [[nodiscard]] const std::vector<ring::PreparedRow>& factors0() const { return factors0_; }
  [[nodiscard]] const std::vector<ring::PreparedRow>& factors1() const { return factors1_; }

  [[nodiscard]] std::vector<std::uint8_t> to_frame() const;
  // Throws Error(kWireFormat), or Error(kParameter) for ring parameters of another version.
  static std::shared_ptr<const PublicKey> from_frame(std::span<const std::uint8_t> frame);

 private:
  ParametersPointer parameters_;
  std::vector<std::uint64_t> rows0_;
  std::vector<std::uint64_t> rows1_;
  std::vector<ring::PreparedRow> factors0_;
  std::vector<ring::PreparedRow> factors1_;
  Id id_;
};

// Not copyable; wiped on destruction.
class SecretKey {
 public:
  // `rows`: s in NTT form. `flooding_seed` keys the noise that hides slots' errors.
  SecretKey(ParametersPointer parameters, SecretVector<std::uint64_t> rows, Id key_id,
            const Seed& flooding_seed);
  SecretKey(const SecretKey&) = delete;
  SecretKey& operator=(const SecretKey&) = delete;
  ~SecretKey();

  [[nodiscard]] const ParametersPointer& parameters() const { return parameters_; }
  [[nodiscard]] const Id& key_id() const { return key_id_; }
  // s in NTT form, a row of degree residues for each prime; and the same for products.
  [[nodiscard]] std::span<const std::uint64_t> rows() const { return rows_; }
  [[nodiscard]] const std::vector<ring::PreparedRow>& factors() const { return factors_; }
  [[nodiscard]] const Seed& flooding_seed() const { return flooding_seed_; }

  // s as coefficients in {-1, 0, 1} followed by the flooding seed: what is stored, under encryption, for a
  // restart.
  [[nodiscard]] SecretVector<std::uint8_t> export_secret() const;
  // Throws Error(kKeyMismatch) unless the secret belongs to this public key.
  static std::shared_ptr<const SecretKey> import_secret(const PublicKey& public_key,
                                                        std::span<const std::uint8_t> exported);

 private:
  ParametersPointer parameters_;
  SecretVector<std::uint64_t> rows_;
  std::vector<ring::PreparedRow> factors_;
  Id key_id_;
  Seed flooding_seed_;
};

struct KeyPair {
  std::shared_ptr<const PublicKey> public_key;
  std::shared_ptr<const SecretKey> secret_key;
};

// A fresh pair from SEAL's generator whose secret and error are within the limits of noise_bound.h; a pair
// that is not (one in 2^64) is thrown away.
KeyPair generate_keys(const ParametersPointer& parameters, SeedSource& seeds);

// What noise_bound.h limits, of a pair: the largest over the primes, which agree when the halves belong
// together. Exposed for tests.
struct KeyNorms {
  std::size_t secret_weight;  // non-zero coefficients of s
  std::int64_t error_norm;    // |e|^2
  std::int64_t error_max;     // max |e_i|
};
KeyNorms measure_keys(const SecretKey& secret, const PublicKey& public_key);

}  // namespace shieldfl::ckks
