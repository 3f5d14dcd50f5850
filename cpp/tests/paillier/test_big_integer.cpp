#include <algorithm>
#include <utility>
#include <vector>

#include "paillier/big_integer.h"
#include "tests/check.h"

namespace paillier_big_integer_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;

namespace {

using Words = std::vector<std::uint64_t>;

bool same_words(const BigInteger& number, const Words& expected) {
  const auto words = number.to_words(expected.size());
  return std::equal(words.begin(), words.end(), expected.begin(), expected.end());
}

}  // namespace

TEST(big_integers_keep_words) {
  const BigInteger number = BigInteger::from_words(Words{0x0102030405060708, 0x090a});
  CHECK(same_words(number, {0x0102030405060708, 0x090a}));
  CHECK(same_words(number, {0x0102030405060708, 0x090a, 0, 0}));
  CHECK(number.bit_length() == 76);
  CHECK_THROWS(number.to_words(1), ErrorCode::kInternal);

  const BigInteger zero;
  CHECK(zero == BigInteger::from_words({}));
  CHECK(zero == BigInteger::from_words(Words{0, 0}));
  CHECK(zero.bit_length() == 0);
  CHECK(zero.to_words(0).empty());
  CHECK(same_words(zero, {0, 0}));
  CHECK(BigInteger(~std::uint64_t{0}).bit_length() == 64);
}

TEST(big_integers_are_values) {
  const BigInteger first = BigInteger::from_words(Words{1, 2, 3});
  BigInteger copy = first;
  copy = copy + BigInteger(1);
  CHECK(same_words(first, {1, 2, 3}));
  CHECK(same_words(copy, {2, 2, 3}));
  BigInteger moved = std::move(copy);
  CHECK(same_words(moved, {2, 2, 3}));
  moved = first;
  CHECK(moved == first);
}

TEST(big_integers_compute) {
  const BigInteger power = BigInteger::from_words(Words{0, 0, 1});  // 2^128
  const BigInteger one(1);
  CHECK(same_words(power - one, {~std::uint64_t{0}, ~std::uint64_t{0}}));
  CHECK((power - one) + one == power);
  CHECK(same_words(power * power, {0, 0, 0, 0, 1}));
  CHECK(same_words((power - one) * (power - one), {1, 0, ~std::uint64_t{0} - 1, ~std::uint64_t{0}}));
  CHECK(power / BigInteger(3) == (power - one) / BigInteger(3));
  CHECK(power % BigInteger(3) == one);
  CHECK(power.modulo_word(1000003) == (power % BigInteger(1000003)).to_words(1)[0]);
  CHECK(power - power == BigInteger());
  CHECK_THROWS(one - power, ErrorCode::kInternal);
  CHECK(one < power && power > one && one <= one && !(power <= one));
}

TEST(big_integers_know_number_theory) {
  CHECK(greatest_common_divisor(BigInteger(12), BigInteger(18)) == BigInteger(6));
  CHECK(greatest_common_divisor(BigInteger(), BigInteger(18)) == BigInteger(18));
  CHECK(power_modulo(BigInteger(3), BigInteger(20), BigInteger(1000)) ==
        BigInteger(401));  // 3^20 = 3486784401
  CHECK(power_modulo(BigInteger(3), BigInteger(0), BigInteger(7)) == BigInteger(1));
  // The squares modulo 15 and its units: 2 is a square modulo neither 3 nor 5, 7 modulo 3 alone.
  CHECK(jacobi_symbol(BigInteger(2), BigInteger(15)) == 1);
  CHECK(jacobi_symbol(BigInteger(7), BigInteger(15)) == -1);
  CHECK(jacobi_symbol(BigInteger(5), BigInteger(15)) == 0);
  const BigInteger root = BigInteger::from_words(Words{5, 7});
  CHECK((root * root).is_perfect_square());
  CHECK(!(root * root + BigInteger(1)).is_perfect_square());
}

TEST(big_integers_are_told_from_primes) {
  const BigInteger mersenne = BigInteger::from_words(Words{~std::uint64_t{0}, (std::uint64_t{1} << 63) - 1});
  CHECK(mersenne.is_probable_prime(64));  // 2^127 - 1
  CHECK(!(mersenne * mersenne).is_probable_prime(64));
  CHECK(BigInteger(2).is_probable_prime(1));
  // Carmichael numbers, and the least strong pseudoprime to the bases 2, 3, 5 and 7.
  for (const std::uint64_t composite : {561ULL, 1105ULL, 41041ULL, 3215031751ULL, 1ULL, 0ULL}) {
    CHECK(!BigInteger(composite).is_probable_prime(1));
  }
}

}  // namespace paillier_big_integer_tests
