#include "paillier/big_integer.h"

#include <algorithm>
#include <string>

#include "common/error.h"

namespace shieldfl::paillier {

namespace {

// Where mpz_import and mpz_export begin.
constexpr int kLowestFirst = -1;
constexpr int kNativeBytes = 0;

// The first 24 rounds of mpz_probab_prime_p are, since GMP 6.2, one test that is not known to fail, yet not
// proven.
constexpr int kRoundsThatGmpReplaces = 24;

// Throws for a number that is longer than `bits`.
void check_room(std::size_t bit_length, std::size_t bits) {
  if (bit_length <= bits) return;
  throw Error(ErrorCode::kInternal,
              "a number of " + std::to_string(bit_length) + " bits does not fit in " + std::to_string(bits));
}

}  // namespace

BigInteger BigInteger::with_room_for(std::size_t bits) {
  BigInteger result;
  // Some functions write a word or two more than the result has.
  mpz_realloc2(result.value_, bits + 128);
  return result;
}

BigInteger::BigInteger(std::uint64_t value) {
  mpz_init_set_ui(value_, value);
}

BigInteger BigInteger::from_words(std::span<const std::uint64_t> little_endian) {
  BigInteger result = with_room_for(64 * little_endian.size());
  mpz_import(result.value_, little_endian.size(), kLowestFirst, sizeof(std::uint64_t), kNativeBytes, 0,
             little_endian.data());
  return result;
}

BigInteger::BigInteger(const BigInteger& other) {
  mpz_init_set(value_, other.value_);
}

BigInteger::BigInteger(BigInteger&& other) noexcept {
  mpz_init(value_);
  mpz_swap(value_, other.value_);
}

BigInteger& BigInteger::operator=(BigInteger other) noexcept {
  mpz_swap(value_, other.value_);
  return *this;
}

BigInteger::~BigInteger() {
  const auto words = static_cast<std::size_t>(value_->_mp_alloc);
  // Of all that is allocated, not just of what the number takes: intermediate results were longer.
  if (words != 0) secure_wipe(mpz_limbs_write(value_, value_->_mp_alloc), words * sizeof(std::uint64_t));
  mpz_clear(value_);
}

SecretVector<std::uint64_t> BigInteger::to_words(std::size_t words) const {
  check_room(bit_length(), 64 * words);
  SecretVector<std::uint64_t> result(words, 0);
  mpz_export(result.data(), nullptr, kLowestFirst, sizeof(std::uint64_t), kNativeBytes, 0, value_);
  return result;
}

std::size_t BigInteger::bit_length() const {
  return mpz_sgn(value_) == 0 ? 0 : mpz_sizeinbase(value_, 2);
}

bool BigInteger::is_perfect_square() const {
  return mpz_perfect_square_p(value_) != 0;
}

bool BigInteger::is_probable_prime(int rounds) const {
  return mpz_probab_prime_p(value_, rounds + kRoundsThatGmpReplaces) != 0;
}

std::uint64_t BigInteger::modulo_word(std::uint64_t divisor) const {
  return mpz_fdiv_ui(value_, divisor);
}

bool operator==(const BigInteger& left, const BigInteger& right) {
  return mpz_cmp(left.value_, right.value_) == 0;
}

std::strong_ordering operator<=>(const BigInteger& left, const BigInteger& right) {
  return mpz_cmp(left.value_, right.value_) <=> 0;
}

BigInteger operator+(const BigInteger& left, const BigInteger& right) {
  BigInteger result = BigInteger::with_room_for(std::max(left.bit_length(), right.bit_length()) + 1);
  mpz_add(result.value_, left.value_, right.value_);
  return result;
}

BigInteger operator-(const BigInteger& left, const BigInteger& right) {
  if (left < right) throw Error(ErrorCode::kInternal, "a difference is negative");
  BigInteger result = BigInteger::with_room_for(left.bit_length());
  mpz_sub(result.value_, left.value_, right.value_);
  return result;
}

BigInteger operator*(const BigInteger& left, const BigInteger& right) {
  BigInteger result = BigInteger::with_room_for(left.bit_length() + right.bit_length());
  mpz_mul(result.value_, left.value_, right.value_);
  return result;
}

BigInteger operator/(const BigInteger& left, const BigInteger& right) {
  BigInteger result = BigInteger::with_room_for(left.bit_length());
  mpz_fdiv_q(result.value_, left.value_, right.value_);
  return result;
}

BigInteger operator%(const BigInteger& left, const BigInteger& right) {
  BigInteger result = BigInteger::with_room_for(std::max(left.bit_length(), right.bit_length()));
  mpz_fdiv_r(result.value_, left.value_, right.value_);
  return result;
}

BigInteger greatest_common_divisor(const BigInteger& left, const BigInteger& right) {
  BigInteger result = BigInteger::with_room_for(std::max(left.bit_length(), right.bit_length()));
  mpz_gcd(result.value_, left.value_, right.value_);
  return result;
}

BigInteger power_modulo(const BigInteger& base, const BigInteger& exponent, const BigInteger& modulus) {
  BigInteger result = BigInteger::with_room_for(modulus.bit_length());
  mpz_powm(result.value_, base.value_, exponent.value_, modulus.value_);
  return result;
}

int jacobi_symbol(const BigInteger& number, const BigInteger& modulus) {
  return mpz_jacobi(number.value_, modulus.value_);
}

}  // namespace shieldfl::paillier
