// Powers of one base on GMP's functions for secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/secure_memory.h"
#include "paillier/engine.h"
#include "paillier/pair_ring.h"

namespace shieldfl::paillier {

// Entry y0 + y1 * n of the table is kept as y0 and slope = y1 / y0 modulo n, since it is y0 * (1 + slope * n)
// modulo n^2. The factors on the right multiply by adding up their slopes, so a digit of the exponent costs
// two products and two reductions instead of three and two; the sum of slopes takes one more of each at the
// end.
class GmpFixedBase final : public FixedBase {
 public:
  // So many exponents pass over a row of the table while it is in the fastest cache.
  static constexpr std::size_t kExponentsAtOnce = 8;

  // `base`: a pair, coprime to n. Throws Error(kParameter) if it is not, or if exponent_bits is 0.
  GmpFixedBase(std::shared_ptr<const PairRing> ring, std::span<const std::uint64_t> base,
               std::size_t exponent_bits);

  [[nodiscard]] std::size_t table_bytes() const override { return table_.size() * sizeof(std::uint64_t); }
  void power(std::span<const std::uint64_t> exponents, std::span<std::uint64_t> pairs) const override;
  void power_vartime(std::span<const std::uint64_t> exponents, std::span<std::uint64_t> pairs) const override;

 private:
  struct Row {
    std::size_t first_bit;
    std::size_t bits;
    const std::uint64_t* entries;
  };

  [[nodiscard]] std::size_t rows() const;
  [[nodiscard]] Row row(std::size_t index) const;
  template <typename Choose>
  void power(std::span<const std::uint64_t> exponents, std::span<std::uint64_t> pairs,
             const Choose& choose) const;

  std::shared_ptr<const PairRing> ring_;
  SecretVector<std::uint64_t> table_;
};

}  // namespace shieldfl::paillier
