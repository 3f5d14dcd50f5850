// The engine for any processor: GMP's functions for secrets, one number at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "paillier/engine.h"
#include "paillier/pair_ring.h"

namespace shieldfl::paillier {

class GmpEngine final : public Engine {
 public:
  // As Engine::make, which checks.
  explicit GmpEngine(std::span<const std::uint64_t> modulus);

  [[nodiscard]] EngineKind kind() const override { return EngineKind::kGmp; }
  [[nodiscard]] std::size_t batch_size() const override;

  void to_pairs(std::span<const std::uint64_t> residues, std::span<std::uint64_t> pairs) const override;
  void to_residues(std::span<const std::uint64_t> pairs, std::span<std::uint64_t> residues) const override;
  void multiply(std::span<const std::uint64_t> left, std::span<const std::uint64_t> right,
                std::span<std::uint64_t> out) const override;
  void multiply_residues(std::span<const std::uint64_t> residues,
                         std::span<std::uint64_t> pairs) const override;
  void add_plaintexts(std::span<const std::uint64_t> plaintexts,
                      std::span<std::uint64_t> pairs) const override;
  void power_public(std::span<const std::uint64_t> bases, std::span<const std::uint64_t> exponent,
                    std::span<std::uint64_t> out) const override;
  void power_secret(std::span<const std::uint64_t> bases, std::span<const std::uint64_t> exponent,
                    std::span<std::uint64_t> out) const override;
  [[nodiscard]] std::unique_ptr<const FixedBase> fixed_base(std::span<const std::uint64_t> base,
                                                            std::size_t exponent_bits) const override;

 private:
  // Tables share it and may outlive the engine.
  std::shared_ptr<const PairRing> ring_;
};

}  // namespace shieldfl::paillier
