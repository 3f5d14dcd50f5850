// What clients and aggregators hold of a key pair.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "paillier/engine.h"
#include "paillier/parameters.h"

namespace shieldfl::paillier {

class PublicKey {
 public:
  // `modulus`: n, parameters.modulus_words() words. `base`: h below n, all zero for classical randomisers.
  // Throws Error(kParameter) for parameters out of range, for an n of another size, even, prime, a square
  // or with a factor below 2^16, and for an h that has a factor in common with n, is trivial (0, 1,
  // n - 1) or whose Jacobi symbol is not 1.
  PublicKey(const Parameters& parameters, std::vector<std::uint64_t> modulus, std::vector<std::uint64_t> base,
            EngineKind engine);
  PublicKey(const PublicKey&) = delete;
  PublicKey& operator=(const PublicKey&) = delete;
  ~PublicKey();

  [[nodiscard]] const Parameters& parameters() const { return parameters_; }
  [[nodiscard]] const Id& id() const { return id_; }  // the digest of parameters, n and h
  [[nodiscard]] std::span<const std::uint64_t> modulus() const { return modulus_; }  // n
  [[nodiscard]] std::span<const std::uint64_t> modulus_square() const { return modulus_square_; }
  [[nodiscard]] std::span<const std::uint64_t> base() const { return base_; }  // h
  [[nodiscard]] const Engine& engine() const { return *engine_; }              // modulo n^2
  // Powers of h^n, which is an n-th residue because whoever holds the key computes it. Made when first asked
  // for, which takes a good part of a second: threads that ask for it at the same time each make one, and
  // keep one. Short exponents only, or this is an Error(kInternal).
  [[nodiscard]] const FixedBase& fixed_base() const;

  [[nodiscard]] std::vector<std::uint8_t> to_frame() const;
  // Throws Error(kWireFormat) for bytes that are no intact frame, Error(kParameter) as the constructor does.
  static std::shared_ptr<const PublicKey> from_frame(std::span<const std::uint8_t> frame, EngineKind engine);

 private:
  Parameters parameters_;
  std::vector<std::uint64_t> modulus_;
  std::vector<std::uint64_t> modulus_square_;
  std::vector<std::uint64_t> base_;
  std::shared_ptr<const Engine> engine_;
  Id id_;
  // Not behind a lock, which a fork could leave locked for ever.
  mutable std::atomic<const FixedBase*> fixed_base_ = nullptr;
};

}  // namespace shieldfl::paillier
