#include "paillier/factor_checks.h"

#include <gmp.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "common/random.h"
#include "common/secure_memory.h"
#include "common/taint.h"
#include "paillier/limbs.h"

namespace shieldfl::paillier {
namespace {

// A composite passes for a quarter of all bases. Seven times the lanes of the widest engine.
constexpr std::size_t kBases = 56;
constexpr std::size_t kApartBits = 100;

// 1 where they are equal, 0 otherwise.
std::uint64_t equal(std::span<const std::uint64_t> left, std::span<const std::uint64_t> right) {
  std::uint64_t difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i) difference |= left[i] ^ right[i];
  return ((difference | -difference) >> 63) ^ 1;
}

std::size_t trailing_zeros(std::span<const std::uint64_t> even) {
  std::size_t zeros = 0;
  for (const std::uint64_t word : even) {
    auto here = static_cast<std::size_t>(std::countr_zero(word));
    // Always 1 for a safe prime. Of other numbers this is a little of a factor, of which half would have to
    // be known.
    declassify(&here, sizeof here);
    zeros += here;
    if (here != 64) break;
  }
  return zeros;
}

}  // namespace

bool is_prime_secret(const Engine& engine, std::span<const std::uint64_t> number, unsigned top_zeros) {
  const std::size_t words = number.size();
  SecretVector<std::uint64_t> minus_one(number.begin(), number.end());
  minus_one.front() -= 1;
  SecretVector<std::uint64_t> one(words);
  one.front() = 1;
  // number - 1 = odd * 2^twos.
  const std::size_t twos = trailing_zeros(minus_one);
  SecretVector<std::uint64_t> odd(minus_one);
  for (std::size_t i = 0; i < twos; ++i) (void)mpn_rshift(odd.data(), odd.data(), limbs_of(odd.size()), 1);

  // Of a pair modulo the square, the lower half is all that matters: the number itself modulo `number`. It is
  // drawn from numbers twice as long, and so is nearly uniform.
  SecretVector<std::uint64_t> pairs(kBases * engine.pair_words());
  SystemSeedSource seeds;
  RandomStream random(seeds.next(), 0);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const bool top = i % engine.pair_words() == engine.pair_words() - 1;
    // Below the square, which is at least 2^(128 * words - 2 - 2 * top_zeros).
    pairs[i] = random.next_u64() >> (top ? 2 + 2 * top_zeros : 0);
  }
  engine.to_pairs(pairs, pairs);
  engine.power_secret(pairs, odd, pairs);
  std::uint64_t passed[kBases] = {};
  for (std::size_t squared = 0; squared < twos; ++squared) {
    if (squared != 0) engine.multiply(pairs, pairs, pairs);
    for (std::size_t i = 0; i < kBases; ++i) {
      const auto power = std::span(pairs).subspan(i * engine.pair_words(), words);
      passed[i] |= equal(power, minus_one);
      if (squared == 0) passed[i] |= equal(power, one);
    }
  }
  std::uint64_t passed_all = 1;
  for (const std::uint64_t each : passed) passed_all &= each;
  const bool prime = passed_all != 0;
  declassify(&prime, sizeof prime);  // the key is used, or it is refused with an error
  return prime;
}

bool is_half_prime_secret(EngineKind engine, std::span<const std::uint64_t> number) {
  SecretVector<std::uint64_t> half(number.size());
  // The lowest bit, which is one, is shifted out.
  (void)mpn_rshift(half.data(), number.data(), limbs_of(number.size()), 1);
  return is_prime_secret(*Engine::make(engine, half), half, 1);
}

bool are_far_apart(std::span<const std::uint64_t> left, std::span<const std::uint64_t> right) {
  const mp_size_t limbs = limbs_of(left.size());
  SecretVector<std::uint64_t> difference(left.size());
  SecretVector<std::uint64_t> opposite(left.size());
  const mp_limb_t borrow = mpn_sub_n(difference.data(), left.data(), right.data(), limbs);
  (void)mpn_sub_n(opposite.data(), right.data(), left.data(), limbs);
  mpn_cnd_swap(borrow, difference.data(), opposite.data(), limbs);
  const std::size_t lowest_bit = 64 * left.size() - kApartBits;
  std::uint64_t upper = difference[lowest_bit / 64] >> (lowest_bit % 64);
  for (std::size_t i = lowest_bit / 64 + 1; i < difference.size(); ++i) upper |= difference[i];
  const bool apart = upper != 0;
  declassify(&apart, sizeof apart);  // as above
  return apart;
}

}  // namespace shieldfl::paillier
