#include "paillier/ifma_power.h"

#include <algorithm>
#include <bit>

#include "paillier/exponent_digits.h"

namespace shieldfl::paillier {

SlidingPower::SlidingPower(const IfmaMontgomery& montgomery, std::span<const std::uint64_t> exponent)
    : montgomery_(montgomery),
      exponent_(exponent),
      bits_(64 * exponent.size() - static_cast<std::size_t>(std::countl_zero(exponent.back()))),
      window_bits_(1) {
  // A window and the zeros before it are window + 1 bits long on average.
  const auto products = [this](std::size_t window) {
    return (std::size_t{1} << (window - 1)) + bits_ / (window + 1);
  };
  while (products(window_bits_ + 1) < products(window_bits_)) ++window_bits_;
}

void SlidingPower::raise(std::uint64_t* lanes, std::uint64_t* table, std::uint64_t* scratch) const {
  const IfmaKernels& kernels = montgomery_.kernels();
  const IfmaModulus& modulus = montgomery_.modulus();
  const std::size_t pair = montgomery_.pair_lanes();
  std::copy_n(lanes, pair, table);
  kernels.square(modulus, lanes, lanes, scratch);
  for (std::size_t i = 1; i < std::size_t{1} << (window_bits_ - 1); ++i) {
    kernels.multiply(modulus, table + (i - 1) * pair, lanes, table + i * pair, scratch);
  }
  bool started = false;
  for (std::size_t bits_left = bits_; bits_left > 0;) {
    if (exponent_digit(exponent_, bits_left - 1, 1) == 0) {
      kernels.square(modulus, lanes, lanes, scratch);
      --bits_left;
      continue;
    }
    std::size_t window = std::min(window_bits_, bits_left);
    while (exponent_digit(exponent_, bits_left - window, 1) == 0) --window;
    bits_left -= window;
    const std::uint64_t* const power = table + exponent_digit(exponent_, bits_left, window) / 2 * pair;
    if (started) {
      for (std::size_t i = 0; i < window; ++i) kernels.square(modulus, lanes, lanes, scratch);
      kernels.multiply(modulus, lanes, power, lanes, scratch);
    } else {
      std::copy_n(power, pair, lanes);
      started = true;
    }
  }
}

void SecretPower::raise(std::uint64_t* lanes, std::uint64_t* table, std::uint64_t* scratch) const {
  const IfmaKernels& kernels = montgomery_.kernels();
  const IfmaModulus& modulus = montgomery_.modulus();
  const std::size_t pair = montgomery_.pair_lanes();
  constexpr std::size_t kEntries = std::size_t{1} << kWindowBits;
  std::copy_n(montgomery_.power_of_r(1), pair, table);
  std::copy_n(lanes, pair, table + pair);
  for (std::size_t i = 2; i < kEntries; ++i) {
    kernels.multiply(modulus, table + (i - 1) * pair, table + pair, table + i * pair, scratch);
  }
  LaneVector power(pair);
  const std::size_t windows = (64 * exponent_.size() + kWindowBits - 1) / kWindowBits;
  for (std::size_t w = windows; w-- > 0;) {
    const std::uint64_t digit = exponent_digit(exponent_, w * kWindowBits, kWindowBits);
    if (w + 1 == windows) {
      kernels.select(table, modulus.limbs, kEntries, digit, lanes);
      continue;
    }
    for (std::size_t i = 0; i < kWindowBits; ++i) kernels.square(modulus, lanes, lanes, scratch);
    kernels.select(table, modulus.limbs, kEntries, digit, power.data());
    kernels.multiply(modulus, lanes, power.data(), lanes, scratch);
  }
}

}  // namespace shieldfl::paillier
