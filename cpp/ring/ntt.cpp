#include "ring/ntt.h"

#include <bit>

#include "common/error.h"

namespace shieldfl::ring {
namespace {

std::size_t bit_reverse(std::size_t index, unsigned bits) {
  std::size_t reversed = 0;
  for (unsigned i = 0; i < bits; ++i) reversed |= ((index >> i) & 1) << (bits - 1 - i);
  return reversed;
}

// The smallest primitive `order`-th root of unity, order a power of two that divides q - 1.
std::uint64_t smallest_primitive_root(std::uint64_t order, std::uint64_t q) {
  std::uint64_t root = 0;
  // Half of all bases give one when q is prime, and hardly any when it is not.
  constexpr std::uint64_t kMaxBase = 1000;
  for (std::uint64_t base = 2;; ++base) {
    if (base > kMaxBase) throw Error(ErrorCode::kParameter, "the modulus is not a prime");
    root = power_vartime(base, (q - 1) / order, q);
    // A power-of-two order is exact iff half of it gives -1.
    if (power_vartime(root, order / 2, q) == q - 1) break;
  }
  // The others are the odd powers of this one.
  const Factor step = make_factor(power_vartime(root, 2, q), q);
  std::uint64_t smallest = root;
  for (std::uint64_t i = 1; i < order / 2; ++i) {
    root = multiply(root, step, q);
    if (root < smallest) smallest = root;
  }
  return smallest;
}

std::vector<Factor> bit_reversed_powers(std::uint64_t root, std::size_t degree, std::uint64_t q) {
  const auto bits = static_cast<unsigned>(std::countr_zero(degree));
  const Factor step = make_factor(root, q);
  std::vector<Factor> powers(degree);
  std::uint64_t power = 1;
  for (std::size_t i = 0; i < degree; ++i) {
    powers[bit_reverse(i, bits)] = make_factor(power, q);
    power = multiply(power, step, q);
  }
  return powers;
}

}  // namespace

Ntt::Ntt(std::size_t degree, Modulus modulus) : degree_(degree), modulus_(modulus), root_(0) {
  const std::uint64_t q = modulus.value;
  if (!std::has_single_bit(degree) || degree < 2 || degree > (1U << 16)) {
    throw Error(ErrorCode::kParameter, "the ring degree must be a power of two from 2 to 65536");
  }
  if ((q - 1) % (2 * degree) != 0) {
    throw Error(ErrorCode::kParameter, "the modulus must be 1 modulo twice the ring degree");
  }
  root_ = smallest_primitive_root(2 * degree, q);
  root_powers_ = bit_reversed_powers(root_, degree, q);
  inverse_root_powers_ = bit_reversed_powers(inverse_vartime(root_, q), degree, q);
  inverse_degree_ = make_factor(inverse_vartime(degree, q), q);
}

void Ntt::forward(std::span<std::uint64_t> values) const {
  const std::uint64_t q = modulus_.value;
  const std::uint64_t two_q = 2 * q;
  // Cooley-Tukey; values stay in [0, 4q) until the end, after Harvey.
  for (std::size_t groups = 1, half = degree_ / 2; half >= 1; groups *= 2, half /= 2) {
    for (std::size_t group = 0; group < groups; ++group) {
      const Factor w = root_powers_[groups + group];
      std::uint64_t* low = values.data() + 2 * group * half;
      std::uint64_t* high = low + half;
      for (std::size_t i = 0; i < half; ++i) {
        const std::uint64_t a = subtract_if_above(low[i], two_q);
        const std::uint64_t b = multiply_lazy(high[i], w, q);
        low[i] = a + b;
        high[i] = a + two_q - b;
      }
    }
  }
  for (std::uint64_t& value : values) value = subtract_if_above(subtract_if_above(value, two_q), q);
}

void Ntt::inverse(std::span<std::uint64_t> values) const {
  const std::uint64_t q = modulus_.value;
  const std::uint64_t two_q = 2 * q;
  // Gentleman-Sande; values stay in [0, 2q) until the end.
  for (std::size_t groups = degree_ / 2, half = 1; groups >= 1; groups /= 2, half *= 2) {
    for (std::size_t group = 0; group < groups; ++group) {
      const Factor w = inverse_root_powers_[groups + group];
      std::uint64_t* low = values.data() + 2 * group * half;
      std::uint64_t* high = low + half;
      for (std::size_t i = 0; i < half; ++i) {
        const std::uint64_t a = low[i];
        const std::uint64_t b = high[i];
        low[i] = subtract_if_above(a + b, two_q);
        high[i] = multiply_lazy(a + two_q - b, w, q);
      }
    }
  }
  for (std::uint64_t& value : values) value = multiply(value, inverse_degree_, q);
}

}  // namespace shieldfl::ring
