#include "paillier/pair_ring.h"

#include <gmp.h>

#include <algorithm>

#include "common/verify.h"

namespace shieldfl::paillier {

PairRing::PairRing(std::span<const std::uint64_t> modulus)
    : modulus_(modulus),
      r_(2 * modulus.size()),
      r_squared_(2 * modulus.size()),
      one_(2 * modulus.size(), 0),
      // Two products beside what the modulus takes, or a third product does.
      scratch_words_(6 * modulus.size() + modulus_.scratch_words()) {
  std::copy_n(modulus_.r_remainder(), words(), r_.begin());
  std::copy_n(modulus_.r_quotient(), words(), r_.data() + words());
  one_[0] = 1;
  SecretVector<std::uint64_t> scratch(scratch_words());
  multiply(r_.data(), r_.data(), r_squared_.data(), scratch.data());
}

bool PairRing::is_pair(const std::uint64_t* pair) const {
  return is_below(pair, modulus_.data(), words()) && is_below(pair + words(), modulus_.data(), words());
}

void PairRing::split(const std::uint64_t* residue, std::uint64_t* pair, std::uint64_t* scratch) const {
  modulus_.divide(residue, pair + words(), pair, scratch);
}

void PairRing::join(const std::uint64_t* pair, std::uint64_t* residue, std::uint64_t* scratch) const {
  const auto limbs = static_cast<mp_size_t>(words());
  VERIFY(is_pair(pair));
  std::uint64_t* product = scratch;
  std::uint64_t* below = product + 2 * words();
  modulus_.multiply(pair + words(), modulus_.data(), product, below);
  const mp_limb_t carry = mpn_add_n(residue, product, pair, limbs);
  (void)mpn_sec_add_1(residue + words(), product + words(), limbs, carry, below);
}

// cross (2 * words(), and the word that is returned above them) = left_low * right_high + left_high *
// right_low.
std::uint64_t PairRing::cross_products(const std::uint64_t* left, const std::uint64_t* right,
                                       std::uint64_t* cross, std::uint64_t* scratch) const {
  VERIFY(is_pair(left) && is_pair(right));
  std::uint64_t* product = scratch;
  std::uint64_t* below = scratch + 2 * words();
  modulus_.multiply(left, right + words(), cross, below);
  modulus_.multiply(left + words(), right, product, below);
  return mpn_add_n(cross, cross, product, static_cast<mp_size_t>(2 * words()));
}

void PairRing::multiply(const std::uint64_t* left, const std::uint64_t* right, std::uint64_t* out,
                        std::uint64_t* scratch) const {
  std::uint64_t* cross = scratch;
  std::uint64_t* low_product = cross + 2 * words();
  std::uint64_t* below = low_product + 2 * words();
  modulus_.fold(cross, cross_products(left, right, cross, low_product));
  modulus_.multiply(left, right, low_product, below);
  modulus_.divide(low_product, out + words(), out, below);
  modulus_.divide(cross, nullptr, low_product, below);
  modulus_.add(out + words(), low_product);
}

void PairRing::add_plaintext(const std::uint64_t* pair, const std::uint64_t* plaintext, std::uint64_t* out,
                             std::uint64_t* scratch) const {
  VERIFY(is_pair(pair) && is_below(plaintext, modulus_.data(), words()));
  std::uint64_t* product = scratch;
  std::uint64_t* remainder = product + 2 * words();
  std::uint64_t* below = remainder + words();
  modulus_.multiply(pair, plaintext, product, below);
  modulus_.divide(product, nullptr, remainder, below);
  if (out != pair) std::copy_n(pair, 2 * words(), out);
  modulus_.add(out + words(), remainder);
}

// From x0*y0 and the cross products, both overwritten. Where t is n or more, n of it goes to the upper half:
// there that is a 1, and an R before the division by R.
void PairRing::montgomery_finish(std::uint64_t* low_product, std::uint64_t* cross, std::uint64_t cross_top,
                                 std::uint64_t* out, std::uint64_t* scratch) const {
  const auto limbs = static_cast<mp_size_t>(words());
  std::uint64_t* multiple = scratch;  // of 2 * words(), the upper half zero
  std::fill_n(multiple + words(), words(), std::uint64_t{0});
  const std::uint64_t carry = modulus_.montgomery_reduce(low_product, multiple, out);
  std::uint64_t* upper = cross + words();
  modulus_.fold(cross, cross_top + mpn_cnd_add_n(carry, upper, upper, one_.data(), limbs));
  const mp_limb_t negative = mpn_sub_n(cross, cross, multiple, 2 * limbs);
  (void)mpn_cnd_add_n(negative, upper, upper, modulus_.data(), limbs);
  (void)modulus_.montgomery_reduce(cross, nullptr, out + words());
  VERIFY(is_pair(out));
}

void PairRing::montgomery_multiply(const std::uint64_t* left, const std::uint64_t* right, std::uint64_t* out,
                                   std::uint64_t* scratch) const {
  std::uint64_t* cross = scratch;
  std::uint64_t* low_product = cross + 2 * words();
  std::uint64_t* below = low_product + 2 * words();
  const std::uint64_t top = cross_products(left, right, cross, low_product);
  modulus_.multiply(left, right, low_product, below);
  montgomery_finish(low_product, cross, top, out, below);
}

void PairRing::montgomery_square(const std::uint64_t* pair, std::uint64_t* out,
                                 std::uint64_t* scratch) const {
  std::uint64_t* cross = scratch;
  std::uint64_t* low_product = cross + 2 * words();
  std::uint64_t* below = low_product + 2 * words();
  VERIFY(is_pair(pair));
  modulus_.multiply(pair, pair + words(), cross, below);
  const mp_limb_t top = mpn_add_n(cross, cross, cross, static_cast<mp_size_t>(2 * words()));
  modulus_.square(pair, low_product, below);
  montgomery_finish(low_product, cross, top, out, below);
}

void PairRing::montgomery_multiply_by_low(const std::uint64_t* left, const std::uint64_t* right_low,
                                          std::uint64_t* out, std::uint64_t* scratch) const {
  std::uint64_t* cross = scratch;
  std::uint64_t* low_product = cross + 2 * words();
  std::uint64_t* below = low_product + 2 * words();
  VERIFY(is_pair(left) && is_below(right_low, modulus_.data(), words()));
  modulus_.multiply(left + words(), right_low, cross, below);
  modulus_.multiply(left, right_low, low_product, below);
  montgomery_finish(low_product, cross, 0, out, below);
}

void PairRing::to_montgomery(const std::uint64_t* pair, std::uint64_t* out, std::uint64_t* scratch) const {
  montgomery_multiply(pair, r_squared_.data(), out, scratch);
}

void PairRing::from_montgomery(const std::uint64_t* pair, std::uint64_t* out, std::uint64_t* scratch) const {
  montgomery_multiply_by_low(pair, one_.data(), out, scratch);
}

}  // namespace shieldfl::paillier
