#include "paillier/opening_check.h"

#include <gmp.h>

#include <algorithm>

#include "common/taint.h"
#include "paillier/secret_key.h"
#include "paillier/secret_modulus.h"

namespace shieldfl::paillier {
namespace {

// Sums of 2^64 products of 64 bits with numbers below n fit above n.
constexpr std::size_t kWordsAbove = 2;

Seed fresh_seed() {
  SystemSeedSource seeds;
  return seeds.next();
}

}  // namespace

OpeningCheck::OpeningCheck(const PublicKey& key)
    : key_(key),
      random_(fresh_seed(), 0),
      lanes_(key.engine().kind() == EngineKind::kIfma ? SecretKey::kBatchSize : 1),
      products_(lanes_ * key.engine().pair_words()),
      sums_(lanes_ * (key.parameters().modulus_words() + kWordsAbove)) {
  const std::size_t words = key.parameters().modulus_words();
  SecretVector<std::uint64_t> known(lanes_ * words);
  for (std::size_t i = 0; i < known.size(); ++i) {
    // Below n, whose top bit is set.
    known[i] = random_.next_u64() >> (i % words == words - 1 ? 1 : 0);
  }
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    products_[lane * key.engine().pair_words()] = 1;
    std::copy_n(known.data() + lane * words, words, sums_.data() + lane * (words + kWordsAbove));
  }
  key.engine().add_plaintexts(known, products_);
}

void OpeningCheck::add(std::span<const std::uint64_t> residues, std::span<const std::uint64_t> plaintexts) {
  const Parameters& parameters = key_.parameters();
  while (!plaintexts.empty()) {
    const std::size_t count = std::min(lanes_, plaintexts.size() / parameters.modulus_words());
    add_row(residues.first(count * parameters.ciphertext_words()),
            plaintexts.first(count * parameters.modulus_words()));
    residues = residues.subspan(count * parameters.ciphertext_words());
    plaintexts = plaintexts.subspan(count * parameters.modulus_words());
  }
}

void OpeningCheck::add_row(std::span<const std::uint64_t> residues,
                           std::span<const std::uint64_t> plaintexts) {
  const std::size_t words = key_.parameters().modulus_words();
  std::uint64_t exponent = random_.next_u64() | (std::uint64_t{1} << 63);
  // It is used once, for ciphertexts that everybody may see.
  declassify(&exponent, sizeof exponent);
  std::vector<std::uint64_t> powers(residues.size());
  key_.engine().to_pairs(residues, powers);
  key_.engine().power_public(powers, {&exponent, 1}, powers);
  const auto products = std::span(products_).first(powers.size());
  key_.engine().multiply(products, powers, products);
  for (std::size_t lane = 0; lane * words < plaintexts.size(); ++lane) {
    std::uint64_t* sum = sums_.data() + lane * (words + kWordsAbove);
    const mp_limb_t carry =
        mpn_addmul_1(sum, plaintexts.data() + lane * words, static_cast<mp_size_t>(words), exponent);
    sum[words] += carry;
    sum[words + 1] += static_cast<std::uint64_t>(sum[words] < carry);
  }
}

bool OpeningCheck::passes(const Decrypt& decrypt) const {
  const std::size_t words = key_.parameters().modulus_words();
  std::vector<std::uint64_t> residues(products_.size());
  key_.engine().to_residues(products_, residues);
  SecretVector<std::uint64_t> opened(lanes_ * words);
  decrypt(residues, opened);
  const SecretModulus modulus(key_.modulus());
  SecretVector<std::uint64_t> scratch(modulus.scratch_words());
  std::uint64_t difference = 0;
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    SecretVector<std::uint64_t> sum(2 * words);
    std::copy_n(sums_.data() + lane * (words + kWordsAbove), words + kWordsAbove, sum.data());
    SecretVector<std::uint64_t> expected(words);
    modulus.divide(sum.data(), nullptr, expected.data(), scratch.data());
    for (std::size_t i = 0; i < words; ++i) difference |= expected[i] ^ opened[lane * words + i];
  }
  const bool right = difference == 0;
  declassify(&right, sizeof right);  // the sums are given out, or an error is
  return right;
}

}  // namespace shieldfl::paillier
