// What eight-lane arithmetic modulo n^2 needs of n, computed once.
//
// A pair x0 + x1 * n is in Montgomery form as x * R modulo n^2, R = 2^(52 * limbs), which is a pair again. As
//   x0 * y0 = t * R - m * n,
// where t is the Montgomery reduction of x0 * y0 and m its quotient,
//   x * y / R = t + n * (x0 * y1 + x1 * y0 - m) / R  modulo n^2:
// two reductions of half the length instead of one of all of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/secure_memory.h"
#include "paillier/ifma_kernels.h"

namespace shieldfl::paillier {

// Numbers in lanes, or scratch.
using LaneVector = SecretVector<std::uint64_t>;

class IfmaMontgomery {
 public:
  // `modulus` as of Engine::make. Constant-time in it.
  IfmaMontgomery(const IfmaKernels& kernels, std::span<const std::uint64_t> modulus);
  // modulus() points into the vectors.
  IfmaMontgomery(const IfmaMontgomery&) = delete;
  IfmaMontgomery& operator=(const IfmaMontgomery&) = delete;

  [[nodiscard]] const IfmaKernels& kernels() const { return kernels_; }
  [[nodiscard]] const IfmaModulus& modulus() const { return modulus_; }
  [[nodiscard]] std::size_t words() const { return words_; }
  [[nodiscard]] std::size_t limbs() const { return modulus_.limbs; }
  // 64-bit words of a group of halves, of a group of pairs, and of scratch for any kernel.
  [[nodiscard]] std::size_t half_lanes() const { return limbs() * kGroup; }
  [[nodiscard]] std::size_t pair_lanes() const { return 2 * half_lanes(); }
  [[nodiscard]] std::size_t scratch_lanes() const { return kScratchHalves * half_lanes(); }
  // R^exponent modulo n^2 in all lanes, a pair below n: 0 to 3.
  [[nodiscard]] const std::uint64_t* power_of_r(std::size_t exponent) const {
    return powers_of_r_.at(exponent).data();
  }

  // `count` <= 8 pairs of 2 * words() words, one after the other. Those that are stored are made the least
  // ones first, of halves below (subtractions + 0.5) * n.
  void load(const std::uint64_t* pairs, std::size_t count, std::uint64_t* lanes,
            std::uint64_t* scratch) const;
  void store(std::uint64_t* lanes, std::size_t count, std::uint64_t* pairs,
             std::size_t subtractions = 1) const;

 private:
  const IfmaKernels& kernels_;
  std::size_t words_;
  LaneVector n_;
  LaneVector complement_;
  IfmaModulus modulus_;
  std::array<LaneVector, 4> powers_of_r_;
};

}  // namespace shieldfl::paillier
