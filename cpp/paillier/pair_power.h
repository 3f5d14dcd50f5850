// Powers of pairs by windows of the exponent.
#pragma once

#include <cstdint>
#include <span>

#include "common/secure_memory.h"
#include "paillier/pair_ring.h"

namespace shieldfl::paillier {

// The buffers of powers with exponents of one length, so that many bases share them.
class PairPower {
 public:
  // Takes the exponent's bits below `exponent_bits`; the ring has to outlive this.
  PairPower(const PairRing& ring, std::size_t exponent_bits);

  // out = base^exponent; `out` may be `base`. Neither branches nor addresses depend on base or exponent.
  void secret_exponent(const std::uint64_t* base, std::span<const std::uint64_t> exponent,
                       std::uint64_t* out);
  // The same with addresses that depend on the exponent, though not on the base.
  void public_exponent(const std::uint64_t* base, std::span<const std::uint64_t> exponent,
                       std::uint64_t* out);

 private:
  template <typename Multiply>
  void power(const std::uint64_t* base, std::span<const std::uint64_t> exponent, std::uint64_t* out,
             const Multiply& multiply_by_entry);

  const PairRing& ring_;
  std::size_t exponent_bits_;
  std::size_t window_bits_;
  SecretVector<std::uint64_t> table_;  // base^0, base^1, ... in Montgomery's form
  SecretVector<std::uint64_t> result_;
  SecretVector<std::uint64_t> entry_;
  SecretVector<std::uint64_t> scratch_;
};

}  // namespace shieldfl::paillier
