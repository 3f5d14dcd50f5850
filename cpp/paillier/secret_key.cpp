#include "paillier/secret_key.h"

#include <gmp.h>

#include <algorithm>

#include "common/error.h"
#include "common/taint.h"
#include "paillier/big_endian.h"
#include "paillier/factor_checks.h"
#include "paillier/limbs.h"
#include "paillier/secret_product.h"

namespace shieldfl::paillier {
namespace {

using Words = SecretVector<std::uint64_t>;

Words product_of(std::span<const std::uint64_t> left, std::span<const std::uint64_t> right) {
  Words product(2 * left.size());
  Words scratch(secret_product_scratch_words(left.size()));
  secret_product(product.data(), left.data(), right.data(), left.size(), scratch.data());
  return product;
}

// Gives the factors back if they are of n. They are then odd, as n is, and have exactly half of its bits: if
// one had fewer, the product with one that fits into its words would be below 2^(key_bits - 1).
Words check_product(const PublicKey& public_key, Words factors) {
  const std::size_t half = public_key.parameters().modulus_words() / 2;
  std::uint64_t difference = 1;
  if (factors.size() == 2 * half) {
    const Words product = product_of(std::span(factors).first(half), std::span(factors).last(half));
    difference = 0;
    for (std::size_t i = 0; i < product.size(); ++i) difference |= product[i] ^ public_key.modulus()[i];
  }
  const bool match = difference == 0;
  declassify(&match, sizeof match);  // the pair is used, or it is refused with an error
  if (!match) throw Error(ErrorCode::kKeyMismatch, "the secret key does not belong to this public key");
  return factors;
}

// number (of any length up to twice the modulus', below modulus * R) modulo `modulus`.
Words reduce(const SecretModulus& modulus, std::span<const std::uint64_t> number) {
  Words wide(2 * modulus.words());
  std::ranges::copy(number, wide.begin());
  Words remainder(modulus.words());
  Words scratch(modulus.scratch_words());
  modulus.divide(wide.data(), nullptr, remainder.data(), scratch.data());
  return remainder;
}

// number * R modulo `modulus`, for a number below it.
Words times_r(const SecretModulus& modulus, const Words& number) {
  Words wide(2 * modulus.words());
  std::ranges::copy(number, wide.begin() + static_cast<std::ptrdiff_t>(modulus.words()));
  return reduce(modulus, wide);
}

// -(number^-1) modulo a prime that does not divide it.
Words negative_inverse(const SecretModulus& prime, std::span<const std::uint64_t> number) {
  const Words residue = reduce(prime, number);
  Words inverse(prime.words());
  if (!prime.invert(residue.data(), inverse.data())) {
    throw Error(ErrorCode::kInternal, "two primes have a factor in common");
  }
  (void)mpn_sub_n(inverse.data(), prime.data(), inverse.data(), limbs_of(inverse.size()));
  return inverse;
}

Words minus_1(std::span<const std::uint64_t> odd) {
  Words result(odd.begin(), odd.end());
  result.front() -= 1;
  return result;
}

}  // namespace

SecretKey::Factor::Factor(EngineKind kind, std::span<const std::uint64_t> factor)
    : prime(factor),
      square(product_of(factor, factor)),
      engine(Engine::make(kind, factor)),
      prime_minus_1(minus_1(factor)) {}

SecretKey::SecretKey(const PublicKey& public_key, SecretVector<std::uint64_t> factors)
    : parameters_(public_key.parameters()),
      key_id_(public_key.id()),
      factors_(check_product(public_key, std::move(factors))),
      p_(public_key.engine().kind(), std::span(factors_).first(factors_.size() / 2)),
      q_(public_key.engine().kind(), std::span(factors_).last(factors_.size() / 2)) {
  check_factors();
  const auto p = std::span(factors_).first(factors_.size() / 2);
  const auto q = std::span(factors_).last(factors_.size() / 2);
  from_q_ = times_r(q_.prime, negative_inverse(q_.prime, p));
  const Words inverse = negative_inverse(p_.prime, q);
  quotient_from_q_ = times_r(p_.prime, inverse);
  // Minus the square of the inverse, whose sign is gone.
  const Words square = reduce(p_.prime, product_of(inverse, inverse));
  Words negative(square.size());
  (void)mpn_sub_n(negative.data(), p_.prime.data(), square.data(), limbs_of(square.size()));
  quotient_from_p_ = times_r(p_.prime, negative);
}

// That n has no factor in common with (p-1)(q-1), without which decryption is not defined, follows: a prime p
// divides q - 1 only if q is more than 2 p, and these are of one length.
void SecretKey::check_factors() const {
  const std::size_t half = factors_.size() / 2;
  const auto p = std::span(factors_).first(half);
  const auto q = std::span(factors_).last(half);
  bool blum = (p.front() & q.front() & 3) == 3;
  declassify(&blum, sizeof blum);  // the pair is used, or it is refused with an error
  if (parameters_.facts().randomizer == Randomizer::kShortExponent && !blum) {
    throw Error(ErrorCode::kParameter,
                "short exponents need factors that are 3 modulo 4: use classical randomisers");
  }
  if (!are_far_apart(p, q)) {
    throw Error(ErrorCode::kParameter, "the factors of the secret key are too close to each other");
  }
  if (!is_prime_secret(*p_.engine, p) || !is_prime_secret(*q_.engine, q)) {
    throw Error(ErrorCode::kParameter, "the factors of the secret key are not prime");
  }
  const EngineKind kind = p_.engine->kind();
  if (parameters_.facts().randomizer == Randomizer::kShortExponent &&
      !(is_half_prime_secret(kind, p) && is_half_prime_secret(kind, q))) {
    throw Error(
        ErrorCode::kParameter,
        "short exponents need factors that are safe primes, p with (p - 1) / 2 prime too: use classical "
        "randomisers with this key, or make a new one");
  }
}

// c^(p-1) = 1 + L_p p modulo p^2 for the ciphertext c of m, and L_p = -m q modulo p, since p n vanishes
// there. So with L_q for q likewise, m modulo q is -L_q p^-1; and m is that and q times u, where u = (-L_p
// q^-1 - (m modulo q)) q^-1 modulo p.
void SecretKey::decrypt(std::span<const std::uint64_t> residues, std::span<std::uint64_t> plaintexts) const {
  const std::size_t words = parameters_.modulus_words();
  const std::size_t half = words / 2;
  const std::size_t count = plaintexts.size() / words;
  Words scratch(std::max({p_.prime.scratch_words(), q_.prime.scratch_words(), p_.square.scratch_words(),
                          q_.square.scratch_words()}));
  const auto powers = [&](const Factor& factor) {
    Words pairs(count * words);
    for (std::size_t i = 0; i < count; ++i) {
      factor.square.divide(residues.data() + 2 * words * i, nullptr, pairs.data() + words * i,
                           scratch.data());
    }
    factor.engine->to_pairs(pairs, pairs);
    factor.engine->power_secret(pairs, factor.prime_minus_1, pairs);
    return pairs;
  };
  const Words p_powers = powers(p_);
  const Words q_powers = powers(q_);
  const auto q = std::span(factors_).last(half);
  Words product(words);
  Words other_product(words);
  Words modulo_q(half);
  Words quotient(half);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t* l_p = p_powers.data() + words * i + half;  // a pair's upper half
    const std::uint64_t* l_q = q_powers.data() + words * i + half;
    q_.prime.multiply(l_q, from_q_.data(), product.data(), scratch.data());
    (void)q_.prime.montgomery_reduce(product.data(), nullptr, modulo_q.data());

    p_.prime.multiply(l_p, quotient_from_p_.data(), product.data(), scratch.data());
    p_.prime.multiply(modulo_q.data(), quotient_from_q_.data(), other_product.data(), scratch.data());
    const auto limbs = limbs_of(product.size());
    p_.prime.fold(product.data(), mpn_add_n(product.data(), product.data(), other_product.data(), limbs));
    (void)p_.prime.montgomery_reduce(product.data(), nullptr, quotient.data());

    p_.prime.multiply(quotient.data(), q.data(), product.data(), scratch.data());
    std::ranges::fill(other_product, 0);
    std::ranges::copy(modulo_q, other_product.begin());
    (void)mpn_add_n(plaintexts.data() + words * i, product.data(), other_product.data(), limbs);
  }
}

SecretVector<std::uint8_t> SecretKey::export_secret() const {
  SecretVector<std::uint8_t> exported(parameters_.modulus_bytes());
  const std::size_t half = factors_.size() / 2;
  to_big_endian(std::span(factors_).first(half), std::span(exported).first(exported.size() / 2));
  to_big_endian(std::span(factors_).last(half), std::span(exported).last(exported.size() / 2));
  return exported;
}

std::shared_ptr<const SecretKey> SecretKey::import_secret(const PublicKey& public_key,
                                                          std::span<const std::uint8_t> exported) {
  const std::size_t half = exported.size() / 2;
  Words factors;
  if (exported.size() == public_key.parameters().modulus_bytes()) {
    factors.resize(public_key.parameters().modulus_words());
    from_big_endian(exported.first(half), std::span(factors).first(factors.size() / 2));
    from_big_endian(exported.last(half), std::span(factors).last(factors.size() / 2));
  }
  // Factors of another number than n's are refused like those of another n.
  return std::make_shared<const SecretKey>(public_key, std::move(factors));
}

}  // namespace shieldfl::paillier
