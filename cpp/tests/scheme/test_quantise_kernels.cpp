#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "scheme/quantise_kernels.h"
#include "tests/check.h"
#include "tests/ring/ring_cases.h"

namespace scheme_quantise_kernels_tests {

using namespace shieldfl;
using namespace shieldfl::scheme;
using namespace shieldfl::tests;

namespace {

constexpr std::int64_t kSentinel = -7;

QuantiseVerdict quantise(const QuantiseKernels& kernels, const float* in, std::size_t count, double factor,
                         double limit, std::int64_t* out) {
  return kernels.quantise_float(in, count, factor, limit, out);
}

QuantiseVerdict quantise(const QuantiseKernels& kernels, const double* in, std::size_t count, double factor,
                         double limit, std::int64_t* out) {
  return kernels.quantise_double(in, count, factor, limit, out);
}

// Whether values are in range, which every set must say alike; where they are, the integers and counts too.
// The values lie one element into their memory, so that no vector is aligned.
template <typename T>
bool agreed_verdict(const std::vector<T>& values, double factor, double limit) {
  const std::size_t count = values.size();
  std::vector<T> shifted(1);
  shifted.insert(shifted.end(), values.begin(), values.end());
  std::vector<std::int64_t> expected(count);
  const QuantiseVerdict verdict =
      quantise(kQuantiseKernelsScalar, shifted.data() + 1, count, factor, limit, expected.data());
  std::uint64_t nonzero = 0;
  std::uint64_t underflowed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] == 0) continue;
    ++nonzero;
    if (expected[i] == 0) ++underflowed;
  }
  CHECK(!verdict.in_range || (verdict.nonzero == nonzero && verdict.underflowed == underflowed));
  for (const InstructionSet set : vector_sets()) {
    std::vector<std::int64_t> out(count + 1, kSentinel);
    const QuantiseVerdict other =
        quantise(quantise_kernels(set), shifted.data() + 1, count, factor, limit, out.data());
    CHECK(other.in_range == verdict.in_range);
    CHECK(!verdict.in_range || (other.nonzero == nonzero && other.underflowed == underflowed));
    CHECK(out.back() == kSentinel);
    out.pop_back();
    CHECK(!verdict.in_range || out == expected);
  }
  return verdict.in_range;
}

template <typename T>
void check_random_values() {
  std::mt19937_64 generator(71);
  std::normal_distribution<double> distribution(0.0, 1.0);
  for (std::size_t count = 0; count <= 70; ++count) {
    for (const double factor : {1.0, 0x1p20, 1e6, 0x1.fffffffffffffp35}) {
      std::vector<T> values(count);
      for (T& value : values) value = static_cast<T>(distribution(generator));
      CHECK(agreed_verdict(values, factor, 0x1p39));
      std::vector<std::int64_t> out(count);
      CHECK(quantise(kQuantiseKernelsScalar, values.data(), count, factor, 0x1p39, out.data()).in_range);
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(static_cast<double>(out[i]) == std::nearbyint(static_cast<double>(values[i]) * factor));
      }
    }
  }
}

// One value in each place of a row, in the vectors and in the tail behind them.
template <typename T>
bool agreed_verdict_anywhere(T value, double factor, double limit) {
  constexpr std::size_t kCount = 39;
  const bool verdict = agreed_verdict(std::vector<T>{value}, factor, limit);
  for (std::size_t place = 0; place < kCount; ++place) {
    std::vector<T> values(kCount, T{0});
    values[place] = value;
    CHECK(agreed_verdict(values, factor, limit) == verdict);
  }
  return verdict;
}

template <typename T>
void check_ties_and_zeros() {
  std::vector<T> values;
  for (int i = -40; i <= 40; ++i) values.push_back(static_cast<T>(i) / 4);
  values.push_back(static_cast<T>(-0.0));
  values.push_back(std::numeric_limits<T>::denorm_min());
  values.push_back(std::nextafter(static_cast<T>(0.5), static_cast<T>(0)));
  values.push_back(std::nextafter(static_cast<T>(0.5), static_cast<T>(1)));
  values.push_back(std::nextafter(static_cast<T>(-1.5), static_cast<T>(0)));
  for (int i = 0; i < 40; ++i)
    values.push_back(static_cast<T>(std::ldexp(i % 2 == 0 ? 1.25 : -1.25, i - 20)));
  for (int i = 0; i < 5; ++i) values.push_back(i % 2 == 0 ? T{0} : -std::numeric_limits<T>::min() / 2);
  for (const double factor : {1.0, -1.0, 2.0, 0.5, 0.0}) CHECK(agreed_verdict(values, factor, 2e6));
}

template <typename T>
void check_limits() {
  for (const double limit : {0.0, 1.0, 10.0, 1000.5, 0x1p39, 0x1.fffffffffep39}) {
    // Only what rounds beyond the limit is out of range.
    const double last = std::floor(limit);
    CHECK(agreed_verdict_anywhere<T>(T{1}, last, limit));
    CHECK(agreed_verdict_anywhere<T>(T{-1}, last, limit));
    CHECK(agreed_verdict_anywhere<T>(T{1}, last + 0.25, limit));
    CHECK(!agreed_verdict_anywhere<T>(T{1}, last + 1, limit));
    CHECK(!agreed_verdict_anywhere<T>(T{-1}, last + 0.75, limit));
  }
  for (const double exponent : {51.0, 52.0, 53.0, 62.0, 63.0, 64.0, 100.0}) {
    CHECK(!agreed_verdict_anywhere<T>(T{1}, std::exp2(exponent), 0x1p39));
    CHECK(!agreed_verdict_anywhere<T>(T{-1.5}, std::exp2(exponent), 0x1p39));
  }
  for (const T value : {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                        std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::quiet_NaN(),
                        std::numeric_limits<T>::signaling_NaN(), std::numeric_limits<T>::max(),
                        std::numeric_limits<T>::lowest()}) {
    CHECK(!agreed_verdict_anywhere<T>(value, 0x1p20, 0x1p39));
  }
}

}  // namespace

TEST(quantise_kernels_agree_with_the_definition) {
  check_random_values<float>();
  check_random_values<double>();
}

TEST(quantise_kernels_agree_on_ties_and_zeros) {
  check_ties_and_zeros<float>();
  check_ties_and_zeros<double>();
}

TEST(quantise_kernels_agree_on_limits) {
  check_limits<float>();
  check_limits<double>();
}

}  // namespace scheme_quantise_kernels_tests
