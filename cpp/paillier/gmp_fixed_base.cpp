#include "paillier/gmp_fixed_base.h"

#include <gmp.h>

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "paillier/exponent_digits.h"

namespace shieldfl::paillier {

namespace {

// Wider windows take fewer products, but every entry of a row is read for each digit.
constexpr std::size_t kWindowBits = 5;
constexpr std::size_t kEntriesInRow = std::size_t{1} << kWindowBits;

}  // namespace

std::size_t GmpFixedBase::rows() const {
  return (exponent_bits() + kWindowBits - 1) / kWindowBits;
}

GmpFixedBase::Row GmpFixedBase::row(std::size_t index) const {
  const std::size_t first_bit = index * kWindowBits;
  const std::size_t row_words = kEntriesInRow * 2 * ring_->words();
  return {first_bit, std::min(kWindowBits, exponent_bits() - first_bit), table_.data() + index * row_words};
}

// Entries of the first row are plain and those of the others in Montgomery's form, so that products are plain
// throughout; slopes are all in Montgomery's form, for the one product at the end.
GmpFixedBase::GmpFixedBase(std::shared_ptr<const PairRing> ring, std::span<const std::uint64_t> base,
                           std::size_t exponent_bits)
    : FixedBase(exponent_bits), ring_(std::move(ring)) {
  if (exponent_bits == 0)
    throw Error(ErrorCode::kParameter, "a fixed base needs exponents of one bit or more");
  const SecretModulus& modulus = ring_->modulus();
  const std::size_t words = ring_->words();
  const std::size_t pair_words = 2 * words;
  SecretVector<std::uint64_t> scratch(ring_->scratch_words());
  SecretVector<std::uint64_t> power_of_base(base.begin(), base.end());
  SecretVector<std::uint64_t> inverse(words);  // of the lower half of power_of_base
  if (!modulus.invert(base.data(), inverse.data())) {
    throw Error(ErrorCode::kParameter, "the base of a table has to be coprime to the modulus");
  }
  SecretVector<std::uint64_t> product(pair_words);
  const auto multiply_modulo_n = [&](const std::uint64_t* left, const std::uint64_t* right,
                                     std::uint64_t* out) {
    modulus.multiply(left, right, product.data(), scratch.data());
    modulus.divide(product.data(), nullptr, out, scratch.data());
  };

  // A last row of fewer bits leaves entries unused at its end.
  const std::size_t last_bits = exponent_bits - (rows() - 1) * kWindowBits;
  table_.resize(((rows() - 1) * kEntriesInRow + (std::size_t{1} << last_bits)) * pair_words);
  SecretVector<std::uint64_t> entry(pair_words, 0);
  SecretVector<std::uint64_t> slope_factor(words, 0);  // R divided by the entry's lower half
  for (std::size_t index = 0; index < rows(); ++index) {
    if (index == 0) {
      std::fill(entry.begin(), entry.end(), std::uint64_t{0});
      entry[0] = 1;
      std::copy_n(modulus.r_remainder(), words, slope_factor.begin());
    } else {
      std::copy_n(ring_->r(), pair_words, entry.begin());
      std::fill(slope_factor.begin(), slope_factor.end(), std::uint64_t{0});
      slope_factor[0] = 1;
    }
    std::uint64_t* kept = table_.data() + index * kEntriesInRow * pair_words;
    for (std::size_t left = std::size_t{1} << row(index).bits; left != 0; --left, kept += pair_words) {
      std::copy_n(entry.begin(), words, kept);
      multiply_modulo_n(entry.data() + words, slope_factor.data(), kept + words);
      ring_->multiply(entry.data(), power_of_base.data(), entry.data(), scratch.data());
      multiply_modulo_n(slope_factor.data(), inverse.data(), slope_factor.data());
    }
    for (std::size_t bit = 0; bit < kWindowBits; ++bit) {
      ring_->multiply(power_of_base.data(), power_of_base.data(), power_of_base.data(), scratch.data());
      multiply_modulo_n(inverse.data(), inverse.data(), inverse.data());
    }
  }
}

template <typename Choose>
void GmpFixedBase::power(std::span<const std::uint64_t> exponents, std::span<std::uint64_t> pairs,
                         const Choose& choose) const {
  const SecretModulus& modulus = ring_->modulus();
  const std::size_t words = ring_->words();
  const std::size_t pair_words = 2 * words;
  const std::size_t count = pairs.size() / pair_words;
  SecretVector<std::uint64_t> scratch(ring_->scratch_words());
  SecretVector<std::uint64_t> slopes(kExponentsAtOnce * words);
  SecretVector<std::uint64_t> results(kExponentsAtOnce * pair_words);
  SecretVector<std::uint64_t> entry(pair_words);
  for (std::size_t begin = 0; begin < count; begin += kExponentsAtOnce) {
    const std::size_t batch = std::min(kExponentsAtOnce, count - begin);
    for (std::size_t index = 0; index < rows(); ++index) {
      const Row from = row(index);
      for (std::size_t i = 0; i < batch; ++i) {
        const auto exponent = exponents.subspan((begin + i) * exponent_words(), exponent_words());
        const std::uint64_t* chosen =
            choose(from, exponent_digit(exponent, from.first_bit, from.bits), entry);
        std::uint64_t* slope = slopes.data() + i * words;
        std::uint64_t* result = results.data() + i * pair_words;
        if (index == 0) {
          std::copy_n(chosen, words, result);
          std::fill_n(result + words, words, std::uint64_t{0});
          std::copy_n(chosen + words, words, slope);
        } else {
          ring_->montgomery_multiply_by_low(result, chosen, result, scratch.data());
          modulus.add(slope, chosen + words);
        }
      }
    }
    for (std::size_t i = 0; i < batch; ++i) {
      std::uint64_t* slope = slopes.data() + i * words;
      std::uint64_t* result = results.data() + i * pair_words;
      modulus.multiply(result, slope, entry.data(), scratch.data());
      (void)modulus.montgomery_reduce(entry.data(), nullptr, slope);
      modulus.add(result + words, slope);
    }
    std::copy_n(results.begin(), batch * pair_words, pairs.data() + begin * pair_words);
  }
}

void GmpFixedBase::power(std::span<const std::uint64_t> exponents, std::span<std::uint64_t> pairs) const {
  power(exponents, pairs, [](const Row& row, std::uint64_t digit, SecretVector<std::uint64_t>& entry) {
    mpn_sec_tabselect(entry.data(), row.entries, static_cast<mp_size_t>(entry.size()),
                      mp_size_t{1} << row.bits, static_cast<mp_size_t>(digit));
    return std::as_const(entry).data();
  });
}

void GmpFixedBase::power_vartime(std::span<const std::uint64_t> exponents,
                                 std::span<std::uint64_t> pairs) const {
  power(exponents, pairs, [](const Row& row, std::uint64_t digit, SecretVector<std::uint64_t>& entry) {
    return row.entries + digit * entry.size();
  });
}

}  // namespace shieldfl::paillier
