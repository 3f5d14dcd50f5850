// Powers of eight different bases with one exponent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "paillier/ifma_montgomery.h"

namespace shieldfl::paillier {

// A public exponent: windows slide over its zeros, and only odd powers are kept.
class SlidingPower {
 public:
  // `exponent` as of Engine::power_public; it must outlive this.
  SlidingPower(const IfmaMontgomery& montgomery, std::span<const std::uint64_t> exponent);
  [[nodiscard]] std::size_t table_lanes() const { return (montgomery_.pair_lanes()) << (window_bits_ - 1); }
  // A group of pairs in Montgomery form, in place.
  void raise(std::uint64_t* lanes, std::uint64_t* table, std::uint64_t* scratch) const;

 private:
  const IfmaMontgomery& montgomery_;
  std::span<const std::uint64_t> exponent_;
  std::size_t bits_;
  std::size_t window_bits_;
};

// A secret exponent: the same operations for every exponent of as many words.
class SecretPower {
 public:
  SecretPower(const IfmaMontgomery& montgomery, std::span<const std::uint64_t> exponent)
      : montgomery_(montgomery), exponent_(exponent) {}
  [[nodiscard]] std::size_t table_lanes() const { return montgomery_.pair_lanes() << kWindowBits; }
  void raise(std::uint64_t* lanes, std::uint64_t* table, std::uint64_t* scratch) const;

 private:
  static constexpr std::size_t kWindowBits = 5;

  const IfmaMontgomery& montgomery_;
  std::span<const std::uint64_t> exponent_;
};

}  // namespace shieldfl::paillier
