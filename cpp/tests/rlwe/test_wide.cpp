#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <vector>

#include "rlwe/wide.h"
#include "tests/check.h"

namespace rlwe_wide_tests {

using namespace shieldfl;
using namespace shieldfl::rlwe;

namespace {

// Modulo 2^256, one bit to an entry: sums carry, and shifts move, by hand.
using Bits = std::array<int, 256>;

Bits bits_of(const Wide& number) {
  Bits bits;
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<int>(number[i / 64] >> i % 64 & 1);
  return bits;
}

Bits sum(const Bits& a, const Bits& b) {
  Bits result;
  int carry = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    carry += a[i] + b[i];
    result[i] = carry % 2;
    carry /= 2;
  }
  return result;
}

Bits negative(Bits bits) {
  for (int& bit : bits) bit = 1 - bit;
  return sum(bits, bits_of({1}));
}

Bits doubled(const Bits& bits) {
  return sum(bits, bits);
}

Bits product(const Bits& number, std::uint64_t factor) {
  Bits result{};
  for (int bit = 63; bit >= 0; --bit) {
    result = doubled(result);
    if ((factor >> bit & 1) != 0) result = sum(result, number);
  }
  return result;
}

// Numbers with runs of ones and zeros, where carries go far, and of both signs.
Wide random_wide(std::mt19937_64& generator) {
  Wide number;
  for (std::uint64_t& word : number) {
    const std::uint64_t kinds[] = {0, ~std::uint64_t{0}, 1, std::uint64_t{1} << 63, generator(), generator()};
    word = kinds[generator() % std::size(kinds)];
  }
  return number;
}

}  // namespace

TEST(sums_differences_and_products_are_those_of_their_bits) {
  std::mt19937_64 generator(501);
  for (int repetition = 0; repetition < 2000; ++repetition) {
    const Wide a = random_wide(generator);
    const Wide b = random_wide(generator);
    CHECK(bits_of(add(a, b)) == sum(bits_of(a), bits_of(b)));
    CHECK(bits_of(add(a, b, kNegate)) == sum(bits_of(a), negative(bits_of(b))));
    CHECK(add(add(a, b), b, kNegate) == a);
    const std::uint64_t factor = random_wide(generator)[0];
    const std::uint64_t addend = random_wide(generator)[0];
    CHECK(bits_of(multiply_add(a, factor, addend)) == sum(product(bits_of(a), factor), bits_of({addend})));
    CHECK(sign(a) == (bits_of(a)[255] == 1 ? ~std::uint64_t{0} : 0));
  }
}

TEST(numbers_shift_down_to_the_next_lower_one) {
  std::mt19937_64 generator(502);
  for (unsigned shift = 1; shift < 256; ++shift) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      const Wide number = random_wide(generator);
      const Bits before = bits_of(number);
      const Bits after = bits_of(shift_down(number, shift));
      for (std::size_t i = 0; i < after.size(); ++i)
        CHECK(after[i] == before[std::min(i + shift, std::size_t{255})]);
    }
  }
}

TEST(powers_of_two_have_one_bit) {
  Bits expected = bits_of({1});
  for (unsigned exponent = 0; exponent < 256; ++exponent, expected = doubled(expected)) {
    CHECK(bits_of(power_of_two(exponent)) == expected);
  }
}

TEST(what_128_bits_hold_is_as_the_compiler_has_it) {
  std::mt19937_64 generator(503);
  const auto wide = [](ring::Int128 number) {
    const auto high = static_cast<std::uint64_t>(static_cast<UInt128>(number) >> 64);
    const std::uint64_t fill = number < 0 ? ~std::uint64_t{0} : 0;
    return Wide{static_cast<std::uint64_t>(number), high, fill, fill};
  };
  for (int repetition = 0; repetition < 2000; ++repetition) {
    const auto random = [&] {
      const auto words = random_wide(generator);
      return static_cast<ring::Int128>((static_cast<UInt128>(words[0]) << 64) | words[1]) >>
             (1 + generator() % 126);
    };
    const ring::Int128 a = random();
    const ring::Int128 b = random();
    CHECK(add(wide(a), wide(b)) == wide(a + b));
    CHECK(add(wide(a), wide(b), kNegate) == wide(a - b));
    const auto bits = static_cast<unsigned>(1 + generator() % 127);
    CHECK(shift_down(wide(a), bits) == wide(a >> bits));
    const auto factor = static_cast<std::uint32_t>(generator());
    const ring::Int128 small = a >> 40;
    CHECK(multiply_add(wide(small), factor, factor) == wide(small * factor + factor));
  }
}

TEST(products_of_primes_are_those_that_python_has) {
  // The largest four below 2^50 that are 1 modulo 16384, and the product of the first none, one, two and so
  // on.
  const std::vector<std::uint64_t> factors = {0x3ffffffffc001, 0x3fffffffcc001, 0x3ffffffef4001,
                                              0x3ffffffe94001};
  const std::vector<Wide> products = {Wide{0x1}, Wide{0x3ffffffffc001}, Wide{0x80000cffc8001, 0xffffffff2},
                                      Wide{0xfffe643b6febc001, 0xfebc003000edbf5d, 0x3fffff},
                                      Wide{0x97ba32081fd50001, 0xf7efeb08d040ff31, 0xfffff54001002081, 0xff}};
  for (std::size_t count = 0; count < products.size(); ++count) {
    CHECK(product_of(std::span(factors).first(count)) == products[count]);
  }
}

}  // namespace rlwe_wide_tests
