#include <algorithm>
#include <functional>

#include "common/cpu_features.h"
#include "paillier/ifma_engine.h"
#include "tests/check.h"
#include "tests/paillier/engine_cases.h"

namespace paillier_ifma_engine_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using namespace shieldfl::tests;

namespace {

using Numbers = std::vector<BigInteger>;

bool supported() {
  return best_instruction_set() == InstructionSet::kAvx512;
}

struct Case {
  BigInteger modulus;
  BigInteger square;
  std::shared_ptr<const Engine> engine;

  [[nodiscard]] Words pairs(const Numbers& residues) const { return concatenate_pairs(residues, modulus); }
  // In any order, so that each lane gets each edge.
  [[nodiscard]] Numbers numbers(const BigInteger& bound, std::size_t count, std::mt19937_64& random) const {
    Numbers result = numbers_below(bound, modulus, count, random);
    // Of ones alone but for the top.
    if (count > 6) result.back() = power_of_two(bound.bit_length() - 1) - BigInteger(1);
    std::shuffle(result.begin(), result.end(), random);
    return result;
  }
  [[nodiscard]] Numbers residues(std::size_t count, std::mt19937_64& random) const {
    return numbers(square, count, random);
  }
};

// Lengths around those of limbs and of words; those of keys and of their primes; and of 80 limbs exactly,
// which are one tile more for lack of room above them.
const std::vector<std::size_t> kLengths = {65,   127,  128,  129,  192,  448,  512, 513,
                                           1024, 1040, 1536, 2048, 3072, 4096, 4160};
// Around those of groups and of blocks of a table's look-ups.
constexpr std::size_t kCounts[] = {0, 1, 7, 8, 9, 64, 65};

void for_each_case(const std::vector<std::size_t>& lengths,
                   const std::function<void(const Case&, std::mt19937_64&)>& body) {
  if (!supported()) return;
  std::mt19937_64 random(81);
  for (const std::size_t bits : lengths) {
    for (const BigInteger& modulus : moduli_of(bits, random)) {
      body({modulus, modulus * modulus, make_ifma_engine(words_of(modulus, (bits + 63) / 64))}, random);
    }
  }
}

Numbers map(const Numbers& numbers, const std::function<BigInteger(const BigInteger&)>& function) {
  Numbers results;
  for (const BigInteger& number : numbers) results.push_back(function(number));
  return results;
}

// What `write` makes of `size` words, behind which nothing may change.
Words written(std::size_t size, const std::function<void(std::span<std::uint64_t>)>& write) {
  constexpr std::uint64_t kSentinel = 42;
  Words out(size + 1, kSentinel);
  write(std::span(out).first(size));
  CHECK(out.back() == kSentinel);
  out.pop_back();
  return out;
}

}  // namespace

TEST(ifma_engine_is_there_where_the_processor_has_it) {
  CHECK((make_ifma_engine(Words{1, 1}) != nullptr) == supported());
}

TEST(ifma_engine_converts_residues_to_pairs_and_back) {
  for_each_case(kLengths, [](const Case& test, std::mt19937_64& random) {
    for (const std::size_t count : kCounts) {
      const Numbers numbers = test.residues(count, random);
      const Words residues = concatenate(numbers, test.engine->pair_words());
      const Words pairs = test.pairs(numbers);
      CHECK(written(pairs.size(), [&](auto out) { test.engine->to_pairs(residues, out); }) == pairs);
      CHECK(written(pairs.size(), [&](auto out) { test.engine->to_residues(pairs, out); }) == residues);
      Words in_place = residues;
      test.engine->to_pairs(in_place, in_place);
      CHECK(in_place == pairs);
      test.engine->to_residues(in_place, in_place);
      CHECK(in_place == residues);
    }
  });
}

TEST(ifma_engine_multiplies) {
  for_each_case(kLengths, [](const Case& test, std::mt19937_64& random) {
    for (const std::size_t count : kCounts) {
      const Numbers left = test.residues(count, random);
      const Numbers right = test.residues(count, random);
      Numbers products;
      for (std::size_t i = 0; i < count; ++i) products.push_back(left[i] * right[i] % test.square);
      const Words expected = test.pairs(products);
      const Words left_pairs = test.pairs(left);
      const Words right_pairs = test.pairs(right);
      const Words right_residues = concatenate(right, test.engine->pair_words());
      CHECK(written(expected.size(),
                    [&](auto out) { test.engine->multiply(left_pairs, right_pairs, out); }) == expected);
      CHECK(written(expected.size(), [&](auto out) {
              std::copy(left_pairs.begin(), left_pairs.end(), out.begin());
              test.engine->multiply(out, right_pairs, out);
            }) == expected);
      CHECK(written(expected.size(), [&](auto out) {
              std::copy(left_pairs.begin(), left_pairs.end(), out.begin());
              test.engine->multiply_residues(right_residues, out);
            }) == expected);
    }
    // Both factors the same memory.
    const Numbers numbers = test.residues(9, random);
    Words pairs = test.pairs(numbers);
    test.engine->multiply(pairs, pairs, pairs);
    CHECK(pairs == test.pairs(map(numbers, [&](const BigInteger& x) { return x * x % test.square; })));
  });
}

TEST(ifma_engine_multiplies_modulo_the_longest_modulus) {
  // Sums of columns come the closest to overflow where all limbs are ones.
  constexpr std::size_t kWords = 552;
  for_each_case({64 * kWords}, [](const Case& test, std::mt19937_64&) {
    const Numbers numbers = {test.square - BigInteger(1),
                             power_of_two(test.square.bit_length() - 1) - BigInteger(1)};
    const Numbers products = map(numbers, [&](const BigInteger& x) { return x * x % test.square; });
    Words pairs = test.pairs(numbers);
    test.engine->multiply_residues(concatenate(numbers, test.engine->pair_words()), pairs);
    CHECK(pairs == test.pairs(products));
  });
  if (supported()) CHECK_THROWS(make_ifma_engine(Words(kWords + 1, 1)), ErrorCode::kParameter);
}

TEST(ifma_engine_adds_plaintexts) {
  for_each_case(kLengths, [](const Case& test, std::mt19937_64& random) {
    for (const std::size_t count : kCounts) {
      const Numbers numbers = test.residues(count, random);
      const Numbers plaintexts = test.numbers(test.modulus, count, random);
      Numbers sums;
      for (std::size_t i = 0; i < count; ++i) {
        sums.push_back(numbers[i] * (BigInteger(1) + plaintexts[i] * test.modulus) % test.square);
      }
      const Words pairs = test.pairs(numbers);
      CHECK(written(pairs.size(), [&](auto out) {
              std::copy(pairs.begin(), pairs.end(), out.begin());
              test.engine->add_plaintexts(concatenate(plaintexts, test.engine->words()), out);
            }) == test.pairs(sums));
    }
  });
}

TEST(ifma_engine_raises_to_public_and_secret_powers) {
  for_each_case({65, 127, 192, 513, 1024, 1536}, [](const Case& test, std::mt19937_64& random) {
    Numbers exponents = {BigInteger(1),
                         BigInteger(2),
                         BigInteger(3),
                         BigInteger(255),
                         power_of_two(64),
                         power_of_two(64) - BigInteger(1),
                         power_of_two(64) + BigInteger(1)};
    exponents.push_back(power_of_two(199) + random_below(power_of_two(199), random));
    exponents.push_back(power_of_two(321) - BigInteger(1));
    if (test.modulus < power_of_two(1100)) exponents.push_back(test.modulus);
    for (std::size_t i = 0; i < exponents.size(); ++i) {
      const Words exponent = words_of(exponents[i], (exponents[i].bit_length() + 63) / 64);
      const Numbers numbers = test.residues(kCounts[i % std::size(kCounts)], random);
      const Words powers = test.pairs(
          map(numbers, [&](const BigInteger& x) { return power_modulo(x, exponents[i], test.square); }));
      const Words pairs = test.pairs(numbers);
      CHECK(written(pairs.size(), [&](auto out) { test.engine->power_public(pairs, exponent, out); }) ==
            powers);
      CHECK(written(pairs.size(), [&](auto out) { test.engine->power_secret(pairs, exponent, out); }) ==
            powers);
      Words in_place = pairs;
      test.engine->power_public(in_place, exponent, in_place);
      CHECK(in_place == powers);
      // Leading zeros of a secret exponent change nothing.
      Words longer = exponent;
      longer.push_back(0);
      in_place = pairs;
      test.engine->power_secret(in_place, longer, in_place);
      CHECK(in_place == powers);
    }
  });
}

namespace {

void check_fixed_base(const Case& test, std::size_t exponent_bits, std::size_t count,
                      std::mt19937_64& random) {
  const BigInteger base = random_below(test.square, random);
  const auto table = test.engine->fixed_base(test.pairs({base}), exponent_bits);
  CHECK(table->exponent_bits() == exponent_bits);
  CHECK(table->table_bytes() > 0 && table->table_bytes() <= 80'000'000);
  Words exponents;
  Numbers powers;
  for (std::size_t i = 0; i < count; ++i) {
    // Zero, one, all ones, and random ones: bits beyond exponent_bits are there to be ignored.
    BigInteger exponent = random_below(power_of_two(64 * table->exponent_words()), random);
    if (i % 5 == 1) exponent = BigInteger(0);
    if (i % 5 == 2) exponent = BigInteger(1);
    if (i % 5 == 3) exponent = power_of_two(64 * table->exponent_words()) - BigInteger(1);
    const Words words = words_of(exponent, table->exponent_words());
    exponents.insert(exponents.end(), words.begin(), words.end());
    powers.push_back(power_modulo(base, exponent % power_of_two(exponent_bits), test.square));
  }
  const Words pairs = test.pairs(powers);
  CHECK(written(pairs.size(), [&](auto out) { table->power(exponents, out); }) == pairs);
  CHECK(written(pairs.size(), [&](auto out) { table->power_vartime(exponents, out); }) == pairs);
}

}  // namespace

TEST(ifma_engine_raises_a_fixed_base) {
  for_each_case({65, 128, 513}, [](const Case& test, std::mt19937_64& random) {
    for (const std::size_t exponent_bits : {1, 5, 6, 7, 8, 9, 10, 63, 64, 65, 100, 512}) {
      for (const std::size_t count : {1, 7, 8, 9, 64, 65})
        check_fixed_base(test, exponent_bits, count, random);
    }
    check_fixed_base(test, 70, 2 * test.engine->batch_size() + 3, random);
    CHECK_THROWS(test.engine->fixed_base(test.pairs({BigInteger(2)}), 0), ErrorCode::kParameter);
  });
}

TEST(ifma_engine_raises_a_fixed_base_of_the_length_of_keys) {
  std::vector<std::size_t> lengths = {1024, 2048, 3072};
  if (all_are_tried()) lengths.push_back(4096);
  for_each_case(lengths, [](const Case& test, std::mt19937_64& random) {
    check_fixed_base(test, test.modulus.bit_length() / 2, 5, random);
  });
  if (!all_are_tried()) return;
  // With wider windows this table would be too large.
  for_each_case({4096},
                [](const Case& test, std::mt19937_64& random) { check_fixed_base(test, 4096, 1, random); });
}

}  // namespace paillier_ifma_engine_tests
