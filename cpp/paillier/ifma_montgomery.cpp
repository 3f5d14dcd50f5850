#include "paillier/ifma_montgomery.h"

#include <gmp.h>

#include <algorithm>
#include <string>

#include "common/error.h"

namespace shieldfl::paillier {
namespace {

using Words = SecretVector<mp_limb_t>;

static_assert(sizeof(mp_limb_t) == sizeof(std::uint64_t));

// Columns of more limbs could overflow.
constexpr std::size_t kMaxLimbs = 680;

std::size_t limbs_for(std::size_t words) {
  // R > 32 n, and how long n's top word is stays secret.
  const std::size_t limbs = (64 * words + 5 + kLimbBits - 1) / kLimbBits;
  const std::size_t padded = (limbs + kLimbsMultiple - 1) / kLimbsMultiple * kLimbsMultiple;
  if (padded > kMaxLimbs) {
    throw Error(ErrorCode::kParameter, "the modulus has " + std::to_string(64 * words) +
                                           " bits, use at most " +
                                           std::to_string((kMaxLimbs * kLimbBits - 5) / 64 * 64));
  }
  return padded;
}

// number = 2 * number + bit modulo n, for a number below n; returns the quotient, 0 or 1. GMP's division
// would look the upper bits of n up in a table.
mp_limb_t double_modulo(mp_limb_t* number, mp_limb_t bit, std::span<const std::uint64_t> n,
                        Words& difference) {
  const auto size = static_cast<mp_size_t>(n.size());
  const mp_limb_t carry = mpn_add_n(number, number, number, size);
  number[0] |= bit;
  // Below 2 n, so a carry comes with a borrow.
  const mp_limb_t quotient = 1 + carry - mpn_sub_n(difference.data(), number, n.data(), size);
  (void)mpn_cnd_sub_n(quotient, number, number, n.data(), size);
  return quotient;
}

// pair = 2^exponent * pair modulo n^2.
void multiply_by_power_of_two(Words& pair, std::size_t exponent, std::span<const std::uint64_t> n) {
  Words difference(n.size());
  for (std::size_t i = 0; i < exponent; ++i) {
    const mp_limb_t quotient = double_modulo(pair.data(), 0, n, difference);
    (void)double_modulo(pair.data() + n.size(), quotient, n, difference);
  }
}

// -1 / n modulo 2^52 for an odd n: each step doubles the number of correct bits, which are three at first.
std::uint64_t negative_inverse(std::uint64_t n) {
  std::uint64_t inverse = n;
  for (unsigned bits = 3; bits < kLimbBits; bits *= 2) inverse *= 2 - n * inverse;
  return (0 - inverse) & ((std::uint64_t{1} << kLimbBits) - 1);
}

}  // namespace

IfmaMontgomery::IfmaMontgomery(const IfmaKernels& kernels, std::span<const std::uint64_t> modulus)
    : kernels_(kernels), words_(modulus.size()), modulus_{} {
  const std::size_t limbs = limbs_for(modulus.size());
  modulus_.limbs = limbs;
  LaneVector lanes(pair_lanes());
  LaneVector scratch(scratch_lanes());
  const auto to_limbs = [&](const std::uint64_t* number) {
    kernels.load(number, 1, words_, words_, limbs, lanes.data(), scratch.data());
    LaneVector result(limbs);
    for (std::size_t i = 0; i < limbs; ++i) result[i] = lanes[kGroup * i];
    return result;
  };
  Words pair(2 * words_);
  pair[0] = 1;
  // 1 - R modulo n is n - (R mod n - 1), and R mod n is not zero.
  Words complement(words_);
  for (std::size_t i = 0; i < powers_of_r_.size(); ++i) {
    if (i != 0) multiply_by_power_of_two(pair, kLimbBits * limbs, modulus);
    if (i == 1) std::copy_n(pair.begin(), words_, complement.begin());
    LaneVector& power = powers_of_r_[i];
    power.resize(pair_lanes());
    // The same number eight times.
    kernels.load(pair.data(), kGroup, 0, words_, limbs, power.data(), scratch.data());
    kernels.load(pair.data() + words_, kGroup, 0, words_, limbs, power.data() + half_lanes(), scratch.data());
  }
  n_ = to_limbs(modulus.data());
  const auto size = static_cast<mp_size_t>(words_);
  Words one_scratch(static_cast<std::size_t>(mpn_sec_sub_1_itch(size)));
  (void)mpn_sec_sub_1(complement.data(), complement.data(), size, 1, one_scratch.data());
  (void)mpn_sub_n(complement.data(), modulus.data(), complement.data(), size);
  complement_ = to_limbs(complement.data());
  for (std::uint64_t& limb : complement_) limb += (std::uint64_t{1} << kLimbBits) - 1;
  modulus_ = {limbs, n_.data(), complement_.data(), negative_inverse(modulus[0])};
}

void IfmaMontgomery::load(const std::uint64_t* pairs, std::size_t count, std::uint64_t* lanes,
                          std::uint64_t* scratch) const {
  kernels_.load(pairs, count, 2 * words_, words_, limbs(), lanes, scratch);
  kernels_.load(pairs + words_, count, 2 * words_, words_, limbs(), lanes + half_lanes(), scratch);
}

void IfmaMontgomery::store(std::uint64_t* lanes, std::size_t count, std::uint64_t* pairs,
                           std::size_t subtractions) const {
  kernels_.reduce(modulus_, lanes, subtractions);
  kernels_.store(lanes, limbs(), count, 2 * words_, words_, pairs);
  kernels_.store(lanes + half_lanes(), limbs(), count, 2 * words_, words_, pairs + words_);
}

}  // namespace shieldfl::paillier
