#include "noise/discrete_gaussian.h"

#include <bit>
#include <cmath>
#include <span>

#include "common/error.h"
#include "common/secure_memory.h"
#include "common/verify.h"

namespace shieldfl::noise {
namespace {

// Counts that honest randomness does not reach: 1/1024! and exp(-4096).
constexpr std::uint64_t kMostTerms = 1024;
constexpr std::uint64_t kMostLaplaceSteps = 4096;

void check_count(std::uint64_t count, std::uint64_t most) {
  if (count >= most) throw Error(ErrorCode::kInternal, "the random generator repeats itself");
}

// True with probability a / b: the random number 0.w1 w2 ... in base 2^16 is below a / b.
bool bernoulli_vartime(UInt128 a, UInt128 b, RandomPieces& pieces) {
  VERIFY(a <= b && b >> 111 == 0);
  for (;;) {
    const UInt128 scaled = a << 16;
    const UInt128 drawn = b * pieces.next();
    if (drawn + b <= scaled) return true;
    if (drawn >= scaled) return false;
    a = scaled - drawn;
  }
}

// The first k such that Bernoulli(x / k) fails is odd with probability exp(-x).
bool bernoulli_exp_minus_unit_vartime(UInt128 numerator, UInt128 denominator, RandomPieces& pieces) {
  VERIFY(numerator <= denominator);
  std::uint64_t k = 1;
  while (bernoulli_vartime(numerator, denominator * k, pieces)) check_count(++k, kMostTerms);
  return k % 2 == 1;
}

// Uniform in [0, bound): rejection leaves no bias.
std::uint64_t uniform_below_vartime(std::uint64_t bound, RandomPieces& pieces) {
  VERIFY(bound <= std::uint64_t{1} << 32);
  const std::uint64_t mask = std::bit_ceil(bound) - 1;
  for (;;) {
    const std::uint64_t low = pieces.next();
    const std::uint64_t high = pieces.next();
    const std::uint64_t drawn = (low | (high << 16)) & mask;
    if (drawn < bound) return drawn;
  }
}

std::uint64_t floor_of_root(std::uint64_t square) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(square)));
  while (root * root > square) --root;
  while ((root + 1) * (root + 1) <= square) ++root;
  return root;
}

}  // namespace

RandomPieces::~RandomPieces() {
  secure_wipe(pieces_.data(), sizeof pieces_);
}

void RandomPieces::refill() {
  stream_.fill({reinterpret_cast<std::uint8_t*>(pieces_.data()), sizeof pieces_});
  used_ = 0;
}

bool bernoulli_exp_minus_vartime(UInt128 numerator, UInt128 denominator, RandomPieces& pieces) {
  for (; numerator > denominator; numerator -= denominator) {
    if (!bernoulli_exp_minus_unit_vartime(1, 1, pieces)) return false;
  }
  return bernoulli_exp_minus_unit_vartime(numerator, denominator, pieces);
}

DiscreteGaussian::DiscreteGaussian(RationalVariance variance) : variance_(variance) {
  if (variance.numerator == 0 || variance.numerator > kMostVarianceNumerator || variance.denominator == 0 ||
      variance.denominator > kMostVarianceDenominator) {
    throw Error(
        ErrorCode::kParameter,
        "a discrete Gaussian's variance needs a numerator from 1 to 2^48 and a denominator from 1 to 2^24");
  }
  laplace_scale_ = floor_of_root(variance.numerator / variance.denominator) + 1;
}

std::int64_t DiscreteGaussian::draw_laplace_vartime(RandomPieces& pieces) const {
  for (;;) {
    const std::uint64_t rest = uniform_below_vartime(laplace_scale_, pieces);
    if (!bernoulli_exp_minus_unit_vartime(rest, laplace_scale_, pieces)) continue;
    std::uint64_t steps = 0;
    while (bernoulli_exp_minus_unit_vartime(1, 1, pieces)) check_count(++steps, kMostLaplaceSteps);
    const auto magnitude = static_cast<std::int64_t>(rest + laplace_scale_ * steps);
    const bool negative = (pieces.next() & 1) != 0;
    if (negative && magnitude == 0) continue;  // 0 has one sign only
    return negative ? -magnitude : magnitude;
  }
}

// A draw y of the Laplace distribution with scale t stays with probability exp(-(|y| - sigma^2 / t)^2 / (2
// sigma^2)). With sigma^2 = p / q that exponent is (|y| q t - p)^2 / (2 p q t^2). As t <= 2 max(1, sigma) and
// |y| <= 2^12 t, the numerator's root is at most 2^12 q t^2 <= 2^14 max(q, p) <= 2^62, and the denominator at
// most 8 p max(q, p) <= 2^99.
std::int64_t DiscreteGaussian::draw_vartime(RandomPieces& pieces) const {
  const UInt128 p = variance_.numerator;
  const UInt128 q = variance_.denominator;
  const UInt128 t = laplace_scale_;
  for (;;) {
    const std::int64_t y = draw_laplace_vartime(pieces);
    const UInt128 scaled = static_cast<UInt128>(y < 0 ? -y : y) * q * t;
    const UInt128 distance = scaled < p ? p - scaled : scaled - p;
    if (bernoulli_exp_minus_vartime(distance * distance, 2 * p * q * t * t, pieces)) return y;
  }
}

}  // namespace shieldfl::noise
