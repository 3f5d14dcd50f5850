#include <cstdint>
#include <random>
#include <vector>

#include "rlwe/field_kernels.h"
#include "tests/check.h"

namespace rlwe_field_kernels_tests {

using namespace shieldfl;
using ring::Int128;
using rlwe::FieldKernels;
using rlwe::MessageRounding;

namespace {

using Words = std::vector<std::uint64_t>;

constexpr std::uint64_t kPrime0 = (std::uint64_t{1} << 50) - 27;
constexpr std::uint64_t kPrime1 = (std::uint64_t{1} << 49) + 9;

std::vector<const FieldKernels*> all_kernels() {
  std::vector<const FieldKernels*> kernels;
  for (const InstructionSet set : supported_instruction_sets()) {
    kernels.push_back(&rlwe::field_kernels(set));
  }
  return kernels;
}

// Digits at random, and numbers at both ends and around `most`.
void fill(std::mt19937_64& generator, const MessageRounding& rounding, Words& digit0, Words& digit1) {
  for (std::size_t i = 0; i < digit0.size(); ++i) {
    Int128 number = static_cast<Int128>(generator() % kPrime1) * kPrime0 + generator() % kPrime0;
    switch (generator() % 4) {
      case 0:
        number = rounding.most + static_cast<int>(generator() % 3) - 1;
        break;
      case 1:
        number = generator() % 2 == 0 ? Int128{0} : rounding.modulus - 1;
        break;
      default:
        number %= rounding.modulus;
    }
    digit0[i] = static_cast<std::uint64_t>(number % kPrime0);
    digit1[i] = static_cast<std::uint64_t>(number / kPrime0);
  }
}

}  // namespace

TEST(every_field_kernel_rounds_as_the_scalar_one_does) {
  const auto kernels = all_kernels();
  std::mt19937_64 generator(531);
  for (const bool two_primes : {false, true}) {
    const Int128 modulus = two_primes ? Int128{kPrime0} * Int128{kPrime1} : Int128{kPrime0};
    for (const unsigned shift : {1u, 9u, 31u, 52u, 63u}) {
      for (const Int128 added : {Int128{1} << (shift - 1), (Int128{3} << 97) - 5, -(Int128{1} << 40) + 3,
                                 (Int128{1} << 114) - 1, -(Int128{1} << 114) + 1}) {
        const MessageRounding rounding{kPrime0, modulus, modulus / 2 + static_cast<int>(generator() % 40),
                                       added, shift};
        for (const std::size_t count : {0u, 1u, 7u, 8u, 64u, 203u}) {
          Words digit0(count);
          Words digit1(count);
          fill(generator, rounding, digit0, digit1);
          std::vector<Words> results;
          for (const FieldKernels* const one : kernels) {
            Words low(count + 8, 5);
            Words high(count + 8, 6);
            one->read_messages(rounding, digit0.data(), two_primes ? digit1.data() : nullptr, count,
                               low.data(), high.data());
            low.insert(low.end(), high.begin(), high.end());
            results.push_back(low);
          }
          for (const Words& result : results) CHECK(result == results[0]);
          for (std::size_t i = 0; i < count; ++i) {
            // By division, as it is stated.
            Int128 number = digit0[i];
            if (two_primes) number += Int128{kPrime0} * static_cast<Int128>(digit1[i]);
            if (number > rounding.most) number -= modulus;
            number += added;
            const Int128 unit = Int128{1} << shift;
            const Int128 packed = (number - ((number % unit) + unit) % unit) / unit;
            CHECK(results[0][i] == static_cast<std::uint64_t>(packed));
            CHECK(results[0][count + 8 + i] == static_cast<std::uint64_t>(packed >> 64));
          }
        }
      }
    }
  }
}

}  // namespace rlwe_field_kernels_tests
