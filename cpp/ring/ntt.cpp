#include "ring/ntt.h"

#include <bit>

#include "common/error.h"
#include "common/verify.h"

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

std::vector<std::uint64_t> bit_reversed_powers(std::uint64_t root, std::size_t degree, std::uint64_t q) {
  const auto bits = static_cast<unsigned>(std::countr_zero(degree));
  const Factor step = make_factor(root, q);
  std::vector<std::uint64_t> powers(degree);
  std::uint64_t power = 1;
  for (std::size_t i = 0; i < degree; ++i) {
    powers[bit_reverse(i, bits)] = power;
    power = multiply(power, step, q);
  }
  return powers;
}

}  // namespace

Ntt::Ntt(std::size_t degree, Modulus modulus, InstructionSet set)
    : degree_(degree), modulus_(modulus), kernels_(nullptr), root_(0) {
  const std::uint64_t q = modulus.value;
  if (!std::has_single_bit(degree) || degree < 2 || degree > (1U << 16)) {
    throw Error(ErrorCode::kParameter, "the ring degree must be a power of two from 2 to 65536");
  }
  if ((q - 1) % (2 * degree) != 0) {
    throw Error(ErrorCode::kParameter, "the modulus must be 1 modulo twice the ring degree");
  }
  const bool vectors = degree >= kVectorMinDegree && q < kVectorModulusLimit;
  kernels_ = &ntt_kernels(vectors ? set : InstructionSet::kScalar);
  root_ = smallest_primitive_root(2 * degree, q);
  root_powers_ = prepare(bit_reversed_powers(root_, degree, q));
  inverse_root_powers_ = prepare(bit_reversed_powers(inverse_vartime(root_, q), degree, q));
  const std::uint64_t inverse_degree = inverse_vartime(degree, q);
  inverse_degree_ = prepare({&inverse_degree, 1});
}

NttTable Ntt::table() const {
  return {degree_,
          modulus_.value,
          root_powers_.first.data(),
          root_powers_.second.data(),
          inverse_root_powers_.first.data(),
          inverse_root_powers_.second.data(),
          inverse_degree_.first.front(),
          inverse_degree_.second.front()};
}

void Ntt::forward(std::span<std::uint64_t> values) const {
  VERIFY(values.size() == degree_ && all_below(values.data(), values.size(), modulus_.value));
  kernels_->forward(values.data(), table());
  VERIFY(all_below(values.data(), values.size(), modulus_.value));
}

void Ntt::inverse(std::span<std::uint64_t> values) const {
  VERIFY(values.size() == degree_ && all_below(values.data(), values.size(), modulus_.value));
  kernels_->inverse(values.data(), table());
  VERIFY(all_below(values.data(), values.size(), modulus_.value));
}

PreparedRow Ntt::prepare(std::span<const std::uint64_t> factors) const {
  VERIFY(all_below(factors.data(), factors.size(), modulus_.value));
  PreparedRow row;
  row.first.resize(factors.size());
  row.second.resize(factors.size());
  kernels_->prepare(factors.data(), factors.size(), modulus_.value, row.first.data(), row.second.data());
  return row;
}

void Ntt::multiply(std::span<const std::uint64_t> in, const PreparedRow& factors,
                   std::span<std::uint64_t> out) const {
  VERIFY(in.size() == out.size() && in.size() == factors.first.size() &&
         all_below(in.data(), in.size(), modulus_.value));
  kernels_->multiply(in.data(), factors.first.data(), factors.second.data(), in.size(), modulus_.value,
                     out.data());
}

}  // namespace shieldfl::ring
