#include "paillier/secret_modulus.h"

#include <gmp.h>

#include <algorithm>

#include "common/taint.h"
#include "common/verify.h"
#include "paillier/limbs.h"
#include "paillier/secret_product.h"

namespace shieldfl::paillier {

namespace {

std::size_t size_of(mp_size_t limbs) {
  return static_cast<std::size_t>(limbs);
}

// Newton's iteration doubles the bits that are right: an odd number is its own inverse modulo 8.
std::uint64_t inverse_modulo_word(std::uint64_t odd) {
  std::uint64_t inverse = odd;
  for (int right_bits = 3; right_bits < 64; right_bits *= 2) inverse *= 2 - odd * inverse;
  return inverse;
}

// Of a word that is not zero, without the branch that std::countl_zero has on some processors.
unsigned leading_zeros(std::uint64_t word) {
  unsigned zeros = 0;
  for (unsigned bit = 0; bit < 64; ++bit) zeros += static_cast<unsigned>((word >> bit) == 0);
  return zeros;
}

}  // namespace

SecretModulus::SecretModulus(std::span<const std::uint64_t> modulus)
    : modulus_(modulus.begin(), modulus.end()),
      shifted_(modulus_),
      reciprocal_(modulus.size()),
      r_quotient_(modulus.size()),
      r_remainder_(modulus.size()),
      negative_inverse_(-inverse_modulo_word(modulus.front())),
      shift_(leading_zeros(modulus.back())) {
  VERIFY(modulus.size() >= 2 && (modulus.front() & 1) != 0 && modulus.back() != 0);
  const std::size_t count = words();
  declassify(&shift_, sizeof shift_);  // the bit length of n is public
  if (shift_ != 0) mpn_lshift(shifted_.data(), shifted_.data(), limbs_of(count), shift_);

  const std::size_t product_scratch = secret_product_scratch_words(count);
  const std::size_t square_scratch = size_of(mpn_sec_sqr_itch(limbs_of(count)));
  const std::size_t carry_scratch = size_of(mpn_sec_add_1_itch(limbs_of(count)));
  // divide() holds the shifted value, a product and a quotient beside what its own calls take.
  scratch_words_ = 5 * count + std::max({product_scratch, square_scratch, carry_scratch});

  find_reciprocal();
  SecretVector<std::uint64_t> r(2 * count, 0);
  r[count] = 1;
  SecretVector<std::uint64_t> scratch(scratch_words_);
  divide(r.data(), r_quotient_.data(), r_remainder_.data(), scratch.data());
}

// Bit by bit, because GMP's division for secrets looks the divisor's top bits up in a table. All bits of R^2
// - 1 are ones, and the quotient's first bit, which stands for R, is implied.
void SecretModulus::find_reciprocal() {
  const mp_size_t limbs = limbs_of(words());
  SecretVector<std::uint64_t> rest(words());
  mpn_com(rest.data(), shifted_.data(), limbs);
  for (std::size_t bit = 0; bit < 64 * words(); ++bit) {
    const mp_limb_t top = mpn_lshift(rest.data(), rest.data(), limbs, 1);
    rest[0] |= 1;
    const mp_limb_t borrow = mpn_sub_n(rest.data(), rest.data(), shifted_.data(), limbs);
    const mp_limb_t below = borrow - top;
    (void)mpn_cnd_add_n(below, rest.data(), rest.data(), shifted_.data(), limbs);
    (void)mpn_lshift(reciprocal_.data(), reciprocal_.data(), limbs, 1);
    reciprocal_[0] |= below ^ 1;
  }
}

void SecretModulus::multiply(const std::uint64_t* left, const std::uint64_t* right, std::uint64_t* product,
                             std::uint64_t* scratch) const {
  secret_product(product, left, right, words(), scratch);
}

void SecretModulus::square(const std::uint64_t* number, std::uint64_t* product,
                           std::uint64_t* scratch) const {
  mpn_sec_sqr(product, number, limbs_of(words()), scratch);
}

void SecretModulus::fold(std::uint64_t* value, std::uint64_t top) const {
  (void)subtract_once(value + words(), top);
}

std::uint64_t SecretModulus::subtract_once(std::uint64_t* number, std::uint64_t top) const {
  const mp_size_t limbs = limbs_of(words());
  const mp_limb_t borrow = mpn_sub_n(number, number, modulus_.data(), limbs);
  const mp_limb_t below = borrow - top;
  VERIFY(top <= 1 && borrow >= top);
  (void)mpn_cnd_add_n(below, number, number, modulus_.data(), limbs);
  VERIFY(is_below(number, modulus_.data(), words()));
  return below ^ 1;
}

void SecretModulus::add(std::uint64_t* number, const std::uint64_t* addend) const {
  VERIFY(is_below(number, modulus_.data(), words()) && is_below(addend, modulus_.data(), words()));
  (void)subtract_once(number, mpn_add_n(number, number, addend, limbs_of(words())));
}

// Barrett's quotient. With V the upper half of the shifted value, n' the shifted n and R + r = floor((R^2 -
// 1) / n'), the estimate V + floor(V * r / R) is never too large and at most 3 too small.
void SecretModulus::divide(const std::uint64_t* value, std::uint64_t* quotient, std::uint64_t* remainder,
                           std::uint64_t* scratch) const {
  const std::size_t count = words();
  const mp_size_t limbs = limbs_of(count);
  VERIFY(is_below(value + count, modulus_.data(), count));
  VERIFY(!overlap(value, 2 * count * sizeof *value, scratch, scratch_words_ * sizeof *scratch));
  std::uint64_t* rest = scratch;
  std::uint64_t* product = rest + 2 * count;
  std::uint64_t* estimate = product + 2 * count;
  std::uint64_t* below = estimate + count;
  if (shift_ == 0) {
    std::copy_n(value, 2 * count, rest);
  } else {
    (void)mpn_lshift(rest, value, 2 * limbs, shift_);
  }

  secret_product(product, rest + count, reciprocal_.data(), count, below);
  (void)mpn_add_n(estimate, product + count, rest + count, limbs);
  secret_product(product, estimate, shifted_.data(), count, below);
  (void)mpn_sub_n(rest, rest, product, limbs + 1);

  std::uint64_t missing = 0;
  for (int step = 0; step < 3; ++step) {
    const mp_limb_t borrow = mpn_sub_n(rest, rest, shifted_.data(), limbs);
    // The word above wraps to all ones exactly when the difference is negative.
    const mp_limb_t top = rest[count] - borrow;
    const mp_limb_t negative = top >> 63;
    rest[count] = top + mpn_cnd_add_n(negative, rest, rest, shifted_.data(), limbs);
    missing += negative ^ 1;
  }
  if (shift_ == 0) {
    std::copy_n(rest, count, remainder);
  } else {
    (void)mpn_rshift(remainder, rest, limbs, shift_);
  }
  VERIFY(is_below(remainder, modulus_.data(), count));
  if (quotient != nullptr) (void)mpn_sec_add_1(quotient, estimate, limbs, missing, below);
}

std::uint64_t SecretModulus::montgomery_reduce(std::uint64_t* value, std::uint64_t* multiple,
                                               std::uint64_t* result) const {
  const std::size_t count = words();
  const mp_size_t limbs = limbs_of(count);
  VERIFY(is_below(value + count, modulus_.data(), count));
  VERIFY(!overlap(value, 2 * count * sizeof *value, result, count * sizeof *result));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t factor = value[i] * negative_inverse_;
    if (multiple != nullptr) multiple[i] = factor;
    // value[i] becomes zero, so it can hold the carry, which belongs words() higher.
    value[i] = mpn_addmul_1(value + i, modulus_.data(), limbs, factor);
  }
  const mp_limb_t top = mpn_add_n(result, value + count, value, limbs);
  return subtract_once(result, top);
}

bool SecretModulus::invert(const std::uint64_t* number, std::uint64_t* inverse) const {
  const mp_size_t limbs = limbs_of(words());
  SecretVector<std::uint64_t> source(number, number + words());
  SecretVector<std::uint64_t> scratch(size_of(mpn_sec_invert_itch(limbs)));
  const auto bits = static_cast<mp_bitcnt_t>(2 * 64 * words());
  int invertible = mpn_sec_invert(inverse, source.data(), modulus_.data(), limbs, bits, scratch.data());
  declassify(&invertible, sizeof invertible);  // whoever meets a number without an inverse has factored n
  return invertible != 0;
}

}  // namespace shieldfl::paillier
