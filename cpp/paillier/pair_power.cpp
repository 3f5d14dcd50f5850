#include "paillier/pair_power.h"

#include <gmp.h>

#include <algorithm>

#include "paillier/exponent_digits.h"

namespace shieldfl::paillier {

namespace {

// The window with the fewest products: those of its table, and one for each digit.
std::size_t best_window_bits(std::size_t exponent_bits) {
  constexpr std::size_t kMostBits = 7;
  const auto products = [&](std::size_t bits) { return (std::size_t{1} << bits) + exponent_bits / bits; };
  std::size_t best = 1;
  for (std::size_t bits = 2; bits <= kMostBits; ++bits) {
    if (products(bits) < products(best)) best = bits;
  }
  return best;
}

}  // namespace

PairPower::PairPower(const PairRing& ring, std::size_t exponent_bits)
    : ring_(ring),
      exponent_bits_(exponent_bits),
      window_bits_(best_window_bits(exponent_bits)),
      table_((std::size_t{1} << window_bits_) * 2 * ring.words()),
      result_(2 * ring.words()),
      entry_(2 * ring.words()),
      scratch_(ring.scratch_words()) {}

template <typename Multiply>
void PairPower::power(const std::uint64_t* base, std::span<const std::uint64_t> exponent, std::uint64_t* out,
                      const Multiply& multiply_by_entry) {
  const std::size_t pair_words = 2 * ring_.words();
  std::copy_n(ring_.r(), pair_words, table_.begin());
  ring_.to_montgomery(base, table_.data() + pair_words, scratch_.data());
  for (std::size_t at = 2 * pair_words; at < table_.size(); at += pair_words) {
    ring_.montgomery_multiply(table_.data() + at - pair_words, table_.data() + pair_words, table_.data() + at,
                              scratch_.data());
  }
  std::copy_n(ring_.r(), pair_words, result_.begin());
  std::size_t bit = (exponent_bits_ + window_bits_ - 1) / window_bits_ * window_bits_;
  while (bit != 0) {
    bit -= window_bits_;
    if (bit + window_bits_ < exponent_bits_) {
      for (std::size_t i = 0; i < window_bits_; ++i) {
        ring_.montgomery_square(result_.data(), result_.data(), scratch_.data());
      }
    }
    multiply_by_entry(exponent_digit(exponent, bit, std::min(window_bits_, exponent_bits_ - bit)));
  }
  ring_.from_montgomery(result_.data(), out, scratch_.data());
}

void PairPower::secret_exponent(const std::uint64_t* base, std::span<const std::uint64_t> exponent,
                                std::uint64_t* out) {
  const auto pair_limbs = static_cast<mp_size_t>(entry_.size());
  power(base, exponent, out, [&](std::uint64_t digit) {
    mpn_sec_tabselect(entry_.data(), table_.data(), pair_limbs, mp_size_t{1} << window_bits_,
                      static_cast<mp_size_t>(digit));
    ring_.montgomery_multiply(result_.data(), entry_.data(), result_.data(), scratch_.data());
  });
}

void PairPower::public_exponent(const std::uint64_t* base, std::span<const std::uint64_t> exponent,
                                std::uint64_t* out) {
  power(base, exponent, out, [&](std::uint64_t digit) {
    if (digit == 0) return;
    ring_.montgomery_multiply(result_.data(), table_.data() + digit * entry_.size(), result_.data(),
                              scratch_.data());
  });
}

}  // namespace shieldfl::paillier
