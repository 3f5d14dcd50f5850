#include <functional>

#include "tests/check.h"
#include "tests/paillier/engine_cases.h"

namespace paillier_gmp_engine_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using namespace shieldfl::tests;

namespace {

struct Case {
  BigInteger modulus;
  BigInteger square;
  std::shared_ptr<const Engine> engine;

  [[nodiscard]] Words pairs(const std::vector<BigInteger>& residues) const {
    return concatenate_pairs(residues, modulus);
  }
};

// Runs `body` for moduli of all kinds of lengths: within a word of a multiple of it, of one word and a bit,
// and those whose products are split.
void for_each_case(const std::function<void(const Case&, std::mt19937_64&)>& body) {
  std::mt19937_64 random(1);
  for (const std::size_t bits : {65, 127, 192, 1024, 2048, 3072}) {
    for (const BigInteger& modulus : moduli_of(bits, random)) {
      body({modulus, modulus * modulus, engine_of(EngineKind::kGmp, modulus)}, random);
    }
  }
}

constexpr std::size_t kCounts[] = {0, 1, 5, 9};

std::vector<BigInteger> map(const std::vector<BigInteger>& numbers,
                            const std::function<BigInteger(const BigInteger&)>& function) {
  std::vector<BigInteger> results;
  for (const BigInteger& number : numbers) results.push_back(function(number));
  return results;
}

}  // namespace

TEST(gmp_engine_splits_residues_and_joins_pairs) {
  for_each_case([](const Case& test, std::mt19937_64& random) {
    for (const std::size_t count : kCounts) {
      const auto numbers = numbers_below(test.square, test.modulus, count, random);
      const Words residues = concatenate(numbers, test.engine->pair_words());
      Words pairs(residues.size());
      test.engine->to_pairs(residues, pairs);
      CHECK(pairs == test.pairs(numbers));
      Words joined(residues.size());
      test.engine->to_residues(pairs, joined);
      CHECK(joined == residues);
      test.engine->to_pairs(joined, joined);
      CHECK(joined == pairs);
      test.engine->to_residues(joined, joined);
      CHECK(joined == residues);
    }
  });
}

TEST(gmp_engine_multiplies) {
  for_each_case([](const Case& test, std::mt19937_64& random) {
    for (const std::size_t count : kCounts) {
      const auto left = numbers_below(test.square, test.modulus, count, random);
      for (const bool same : {false, true}) {
        auto right = left;
        if (!same)
          std::rotate(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(count / 2), right.end());
        std::vector<BigInteger> products;
        for (std::size_t i = 0; i < count; ++i) products.push_back(left[i] * right[i] % test.square);
        const Words expected = test.pairs(products);
        Words out(expected.size());
        test.engine->multiply(test.pairs(left), test.pairs(right), out);
        CHECK(out == expected);
        out = test.pairs(left);
        test.engine->multiply(out, same ? out : test.pairs(right), out);
        CHECK(out == expected);
        out = test.pairs(left);
        test.engine->multiply_residues(concatenate(right, test.engine->pair_words()), out);
        CHECK(out == expected);
      }
    }
  });
}

TEST(gmp_engine_adds_plaintexts) {
  for_each_case([](const Case& test, std::mt19937_64& random) {
    for (const std::size_t count : kCounts) {
      const auto numbers = numbers_below(test.square, test.modulus, count, random);
      const auto plaintexts = numbers_below(test.modulus, test.modulus, count, random);
      std::vector<BigInteger> sums;
      for (std::size_t i = 0; i < count; ++i) {
        sums.push_back(numbers[i] * (BigInteger(1) + plaintexts[i] * test.modulus) % test.square);
      }
      Words pairs = test.pairs(numbers);
      test.engine->add_plaintexts(concatenate(plaintexts, test.engine->words()), pairs);
      CHECK(pairs == test.pairs(sums));
    }
  });
}

TEST(gmp_engine_raises_to_powers) {
  for_each_case([](const Case& test, std::mt19937_64& random) {
    const bool is_long = test.modulus.bit_length() > 1024;
    const auto bases = numbers_below(test.square, test.modulus, is_long ? 3 : 9, random);
    for (const BigInteger& exponent :
         {BigInteger(1), BigInteger(2), BigInteger(65537), power_of_two(64),
          power_of_two(130) - BigInteger(1), random_below(test.modulus, random), test.modulus}) {
      if (is_long && exponent.bit_length() > 1024 && !(exponent == test.modulus)) continue;
      const Words words = words_of(exponent, (exponent.bit_length() + 63) / 64);
      const Words expected = test.pairs(
          map(bases, [&](const BigInteger& base) { return power_modulo(base, exponent, test.square); }));
      Words out = test.pairs(bases);
      test.engine->power_public(out, words, out);
      CHECK(out == expected);
      out = test.pairs(bases);
      Words longer = words;
      longer.push_back(0);
      test.engine->power_secret(out, longer, out);
      CHECK(out == expected);
    }
    Words out = test.pairs(bases);
    test.engine->power_secret(out, Words{0}, out);
    CHECK(out == test.pairs(map(bases, [](const BigInteger&) { return BigInteger(1); })));
    Words none;
    test.engine->power_public(none, Words{3}, none);
    test.engine->power_secret(none, Words{3}, none);
  });
}

TEST(gmp_engine_raises_a_fixed_base) {
  for_each_case([](const Case& test, std::mt19937_64& random) {
    const BigInteger one(1);
    for (const BigInteger& candidate :
         {random_below(test.square, random), one, test.square - one, test.modulus + one}) {
      BigInteger base = candidate;
      while (!(greatest_common_divisor(base, test.modulus) == one)) base = base + one;
      const bool is_long = test.modulus.bit_length() > 192;
      for (const std::size_t bits : {1, 5, 6, 7, 63, 64, 130, 257}) {
        if (is_long && bits != 130) continue;
        const auto table = test.engine->fixed_base(test.pairs({base}), bits);
        CHECK(table->exponent_bits() == bits);
        CHECK(table->exponent_words() == (bits + 63) / 64);
        // 32 pairs for every five bits, fewer for the last ones.
        const std::size_t pair_bytes = test.engine->pair_words() * sizeof(std::uint64_t);
        CHECK(table->table_bytes() > 0 && table->table_bytes() <= (bits + 4) / 5 * 32 * pair_bytes);
        for (const std::size_t count : kCounts) {
          const BigInteger bound = power_of_two(bits);
          auto exponents = numbers_below(bound, one, count, random);
          const Words expected = test.pairs(map(exponents, [&](const BigInteger& exponent) {
            return power_modulo(base, exponent, test.square);
          }));
          Words words = concatenate(exponents, table->exponent_words());
          for (const bool bits_above : {false, true}) {  // which do not count
            for (std::size_t i = 0; bits_above && bits % 64 != 0 && i < count; ++i) {
              words[(i + 1) * table->exponent_words() - 1] |= ~std::uint64_t{0} << (bits % 64);
            }
            Words pairs(expected.size());
            table->power(words, pairs);
            CHECK(pairs == expected);
            std::fill(pairs.begin(), pairs.end(), std::uint64_t{0});
            table->power_vartime(words, pairs);
            CHECK(pairs == expected);
          }
        }
      }
    }
  });
}

TEST(gmp_engine_tables_outlive_the_engine) {
  std::mt19937_64 random(2);
  const BigInteger modulus = moduli_of(192, random).back();
  const auto table =
      engine_of(EngineKind::kGmp, modulus)->fixed_base(concatenate_pairs({BigInteger(2)}, modulus), 64);
  Words pair(6);
  table->power(Words{1000}, pair);
  CHECK(pair ==
        concatenate_pairs({power_modulo(BigInteger(2), BigInteger(1000), modulus * modulus)}, modulus));
}

TEST(gmp_engine_refuses_what_is_out_of_its_range) {
  std::mt19937_64 random(3);
  const BigInteger factor = moduli_of(100, random).back();
  const BigInteger modulus = factor * BigInteger(5);
  const auto engine = engine_of(EngineKind::kGmp, modulus);
  CHECK_THROWS(engine->fixed_base(concatenate_pairs({factor}, modulus), 8), ErrorCode::kParameter);
  CHECK_THROWS(engine->fixed_base(concatenate_pairs({BigInteger(0)}, modulus), 8), ErrorCode::kParameter);
  CHECK_THROWS(engine->fixed_base(concatenate_pairs({BigInteger(2)}, modulus), 0), ErrorCode::kParameter);
  for (const EngineKind kind : {EngineKind::kGmp, EngineKind::kIfma}) {
    CHECK_THROWS(Engine::make(kind, Words{}), ErrorCode::kParameter);
    CHECK_THROWS(Engine::make(kind, Words{15}), ErrorCode::kParameter);
    CHECK_THROWS(Engine::make(kind, Words{15, 0}), ErrorCode::kParameter);
    CHECK_THROWS(Engine::make(kind, Words{14, 1}), ErrorCode::kParameter);
  }
}

}  // namespace paillier_gmp_engine_tests
