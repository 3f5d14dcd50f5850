#include "paillier/secret_product.h"

#include <gmp.h>

#include <algorithm>
#include <type_traits>

namespace shieldfl::paillier {

static_assert(sizeof(mp_limb_t) == sizeof(std::uint64_t) && GMP_NAIL_BITS == 0,
              "GMP has to be built with limbs of 64 bits, all of them used");

namespace {

// From here on three products of half the length, and what surrounds them, take less time than one.
constexpr std::size_t kLeastKaratsubaWords = 22;

bool splits(std::size_t words) {
  return words >= kLeastKaratsubaWords && words % 2 == 0;
}

}  // namespace

std::size_t secret_product_scratch_words(std::size_t words) {
  const auto limbs = static_cast<mp_size_t>(words);
  if (!splits(words)) return static_cast<std::size_t>(mpn_sec_mul_itch(limbs, limbs));
  const auto carry = static_cast<std::size_t>(mpn_sec_add_1_itch(limbs / 2));
  return 2 * words + std::max(secret_product_scratch_words(words / 2), carry);
}

void secret_product(std::uint64_t* product, const std::uint64_t* left, const std::uint64_t* right,
                    std::size_t words, std::uint64_t* scratch) {
  const auto limbs = static_cast<mp_size_t>(words);
  if (!splits(words)) {
    mpn_sec_mul(product, left, limbs, right, limbs, scratch);
    return;
  }
  const std::size_t half_words = words / 2;
  const auto half = static_cast<mp_size_t>(half_words);
  std::uint64_t* left_sum = scratch;
  std::uint64_t* right_sum = scratch + half_words;
  std::uint64_t* middle = scratch + words;
  std::uint64_t* rest = scratch + 2 * words;

  secret_product(product, left, right, half_words, rest);
  secret_product(product + words, left + half_words, right + half_words, half_words, rest);
  const mp_limb_t left_carry = mpn_add_n(left_sum, left, left + half, half);
  const mp_limb_t right_carry = mpn_add_n(right_sum, right, right + half, half);
  secret_product(middle, left_sum, right_sum, half_words, rest);
  mp_limb_t top = left_carry & right_carry;
  top += mpn_cnd_add_n(left_carry, middle + half, middle + half, right_sum, half);
  top += mpn_cnd_add_n(right_carry, middle + half, middle + half, left_sum, half);
  top -= mpn_sub_n(middle, middle, product, limbs);
  top -= mpn_sub_n(middle, middle, product + limbs, limbs);
  top += mpn_add_n(product + half, product + half, middle, limbs);
  (void)mpn_sec_add_1(product + limbs + half, product + limbs + half, half, top, rest);
}

}  // namespace shieldfl::paillier
