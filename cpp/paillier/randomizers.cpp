#include "paillier/randomizers.h"

#include <gmp.h>

#include <algorithm>

#include "common/secure_memory.h"
#include "common/taint.h"

namespace shieldfl::paillier {
namespace {

// What is reduced modulo n has so many bits more than n: 2^-128 is how far the remainder is from uniform.
constexpr std::size_t kExcessWords = 2;

// Powers that have no table gain nothing by more numbers than an engine has lanes.
constexpr std::size_t kPowersAtOnce = 8;

void fill_secret(const Seed& seed, std::uint64_t stream_index, std::span<std::uint64_t> words) {
  RandomStream stream(seed, stream_index);
  stream.fill({reinterpret_cast<std::uint8_t*>(words.data()), words.size_bytes()});
  mark_secret(words.data(), words.size_bytes());
}

void make_short(const PublicKey& key, const Seed& seed, std::uint64_t first, bool lookups_vartime,
                std::span<std::uint64_t> pairs) {
  const FixedBase& base = key.fixed_base();
  const std::size_t count = pairs.size() / key.engine().pair_words();
  const std::size_t words = base.exponent_words();
  SecretVector<std::uint64_t> exponents(count * words);
  for (std::size_t i = 0; i < count; ++i)
    fill_secret(seed, first + i, std::span(exponents).subspan(i * words, words));
  if (lookups_vartime) {
    base.power_vartime(exponents, pairs);
  } else {
    base.power(exponents, pairs);
  }
}

// r^n with r random below n. That r has a factor in common with n, or is 0, is as likely as finding a factor
// of n by drawing numbers at random: below 2^-1000.
void make_classical(const PublicKey& key, const Seed& seed, std::uint64_t first,
                    std::span<std::uint64_t> pairs) {
  const std::size_t words = key.engine().words();
  const auto modulus_words = static_cast<mp_size_t>(words);
  const auto number_words = static_cast<mp_size_t>(words + kExcessWords);
  SecretVector<std::uint64_t> number(words + kExcessWords);
  SecretVector<std::uint64_t> scratch(
      static_cast<std::size_t>(mpn_sec_div_r_itch(number_words, modulus_words)));
  for (std::size_t place = 0; place < pairs.size(); place += 2 * words, ++first) {
    fill_secret(seed, first, number);
    mpn_sec_div_r(number.data(), number_words, key.modulus().data(), modulus_words, scratch.data());
    const auto pair = pairs.subspan(place, 2 * words);
    std::copy_n(number.begin(), words, pair.begin());
    std::fill(pair.begin() + static_cast<std::ptrdiff_t>(words), pair.end(), 0);
  }
  key.engine().power_public(pairs, key.modulus(), pairs);
}

}  // namespace

void prepare_randomizers(const PublicKey& key) {
  if (key.parameters().facts().randomizer == Randomizer::kShortExponent) (void)key.fixed_base();
}

std::size_t randomizers_at_once(const PublicKey& key) {
  const std::size_t batch = key.engine().batch_size();
  return key.parameters().facts().randomizer == Randomizer::kShortExponent ? batch
                                                                           : std::min(batch, kPowersAtOnce);
}

void make_randomizers(const PublicKey& key, const Seed& seed, std::uint64_t first, bool lookups_vartime,
                      std::span<std::uint64_t> pairs) {
  if (key.parameters().facts().randomizer == Randomizer::kShortExponent) {
    make_short(key, seed, first, lookups_vartime, pairs);
  } else {
    make_classical(key, seed, first, pairs);
  }
}

}  // namespace shieldfl::paillier
