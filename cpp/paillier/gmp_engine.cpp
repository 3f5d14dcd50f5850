#include "paillier/gmp_engine.h"

#include <bit>

#include "paillier/gmp_fixed_base.h"
#include "paillier/pair_power.h"

namespace shieldfl::paillier {

GmpEngine::GmpEngine(std::span<const std::uint64_t> modulus)
    : Engine(modulus.size()), ring_(std::make_shared<const PairRing>(modulus)) {}

std::size_t GmpEngine::batch_size() const {
  return GmpFixedBase::kExponentsAtOnce;
}

void GmpEngine::to_pairs(std::span<const std::uint64_t> residues, std::span<std::uint64_t> pairs) const {
  SecretVector<std::uint64_t> scratch(ring_->scratch_words());
  for (std::size_t at = 0; at < pairs.size(); at += pair_words()) {
    ring_->split(residues.data() + at, pairs.data() + at, scratch.data());
  }
}

void GmpEngine::to_residues(std::span<const std::uint64_t> pairs, std::span<std::uint64_t> residues) const {
  SecretVector<std::uint64_t> scratch(ring_->scratch_words());
  for (std::size_t at = 0; at < pairs.size(); at += pair_words()) {
    ring_->join(pairs.data() + at, residues.data() + at, scratch.data());
  }
}

void GmpEngine::multiply(std::span<const std::uint64_t> left, std::span<const std::uint64_t> right,
                         std::span<std::uint64_t> out) const {
  SecretVector<std::uint64_t> scratch(ring_->scratch_words());
  for (std::size_t at = 0; at < out.size(); at += pair_words()) {
    ring_->multiply(left.data() + at, right.data() + at, out.data() + at, scratch.data());
  }
}

void GmpEngine::multiply_residues(std::span<const std::uint64_t> residues,
                                  std::span<std::uint64_t> pairs) const {
  SecretVector<std::uint64_t> scratch(ring_->scratch_words());
  SecretVector<std::uint64_t> factor(pair_words());
  for (std::size_t at = 0; at < pairs.size(); at += pair_words()) {
    ring_->split(residues.data() + at, factor.data(), scratch.data());
    ring_->multiply(pairs.data() + at, factor.data(), pairs.data() + at, scratch.data());
  }
}

void GmpEngine::add_plaintexts(std::span<const std::uint64_t> plaintexts,
                               std::span<std::uint64_t> pairs) const {
  SecretVector<std::uint64_t> scratch(ring_->scratch_words());
  for (std::size_t i = 0; i < pairs.size() / pair_words(); ++i) {
    std::uint64_t* pair = pairs.data() + i * pair_words();
    ring_->add_plaintext(pair, plaintexts.data() + i * words(), pair, scratch.data());
  }
}

void GmpEngine::power_public(std::span<const std::uint64_t> bases, std::span<const std::uint64_t> exponent,
                             std::span<std::uint64_t> out) const {
  const auto top_word_bits = static_cast<std::size_t>(std::bit_width(exponent.back()));
  PairPower power(*ring_, 64 * (exponent.size() - 1) + top_word_bits);
  for (std::size_t at = 0; at < out.size(); at += pair_words()) {
    power.public_exponent(bases.data() + at, exponent, out.data() + at);
  }
}

void GmpEngine::power_secret(std::span<const std::uint64_t> bases, std::span<const std::uint64_t> exponent,
                             std::span<std::uint64_t> out) const {
  PairPower power(*ring_, 64 * exponent.size());
  for (std::size_t at = 0; at < out.size(); at += pair_words()) {
    power.secret_exponent(bases.data() + at, exponent, out.data() + at);
  }
}

std::unique_ptr<const FixedBase> GmpEngine::fixed_base(std::span<const std::uint64_t> base,
                                                       std::size_t exponent_bits) const {
  return std::make_unique<GmpFixedBase>(ring_, base, exponent_bits);
}

}  // namespace shieldfl::paillier
