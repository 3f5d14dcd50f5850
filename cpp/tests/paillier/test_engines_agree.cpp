// The engines give the same words, and those of known answers.
#include <functional>

#include "tests/check.h"
#include "tests/paillier/engine_cases.h"

namespace paillier_engines_agree_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using namespace shieldfl::tests;

namespace {

std::vector<EngineKind> kinds() {
  std::vector<EngineKind> kinds{EngineKind::kGmp};
  if (engine_for(instruction_set()) != EngineKind::kGmp) kinds.push_back(engine_for(instruction_set()));
  return kinds;
}

// What an engine makes of inputs that depend on the modulus and the count alone.
std::vector<Words> results_of(const Engine& engine, const BigInteger& modulus, std::size_t count) {
  std::mt19937_64 random(count);
  const BigInteger square = modulus * modulus;
  const Words left = concatenate(numbers_below(square, modulus, count, random), engine.pair_words());
  auto reversed = numbers_below(square, modulus, count, random);
  std::reverse(reversed.begin(), reversed.end());
  const Words right = concatenate(reversed, engine.pair_words());
  const Words plaintexts = concatenate(numbers_below(modulus, modulus, count, random), engine.words());

  Words pairs(left.size());
  engine.to_pairs(left, pairs);
  Words right_pairs(right.size());
  engine.to_pairs(right, right_pairs);
  Words residues(left.size());
  engine.to_residues(pairs, residues);
  Words product(left.size());
  engine.multiply(pairs, right_pairs, product);
  Words total = pairs;
  engine.multiply_residues(right, total);
  Words sum = product;
  engine.add_plaintexts(plaintexts, sum);
  const Words exponent = words_of(random_below(power_of_two(150), random), 3);
  Words secret_power(left.size());
  engine.power_secret(pairs, exponent, secret_power);
  Words public_power(left.size());
  engine.power_public(pairs, words_of(power_of_two(70) + BigInteger(12345), 2), public_power);
  CHECK(residues == left);
  CHECK(product == total);
  return {pairs, product, sum, secret_power, public_power};
}

BigInteger decimal(const char* digits) {
  BigInteger number;
  for (; *digits != 0; ++digits)
    number = number * BigInteger(10) + BigInteger(static_cast<std::uint64_t>(*digits - '0'));
  return number;
}

}  // namespace

TEST(engines_agree_word_for_word) {
  std::mt19937_64 random(10);
  for (const std::size_t bits : {65, 127, 128, 192, 520, 1024, 1536, 2048, 3072}) {
    for (const BigInteger& modulus : moduli_of(bits, random)) {
      for (const std::size_t count : {0, 1, 5, 8, 19}) {
        if (bits > 1024 && count > 8) continue;
        const auto expected = results_of(*engine_of(EngineKind::kGmp, modulus), modulus, count);
        for (const EngineKind kind : kinds()) {
          const auto engine = engine_of(kind, modulus);
          CHECK(engine->kind() == kind);
          CHECK(engine->batch_size() >= 1);
          CHECK(results_of(*engine, modulus, count) == expected);
        }
      }
    }
  }
}

TEST(engines_agree_on_powers_of_a_fixed_base) {
  std::mt19937_64 random(11);
  for (const std::size_t bits : {65, 192, 1024, 2048, 3072}) {
    for (const BigInteger& modulus : moduli_of(bits, random)) {
      BigInteger base = random_below(modulus * modulus, random);
      while (!(greatest_common_divisor(base, modulus) == BigInteger(1))) base = base + BigInteger(1);
      const Words pair = concatenate_pairs({base}, modulus);
      for (const std::size_t exponent_bits : {7, 64, 100}) {
        const std::size_t count = bits == 65 ? 37 : 9;
        const auto exponents = numbers_below(power_of_two(exponent_bits), BigInteger(2), count, random);
        std::vector<Words> results;
        for (const EngineKind kind : kinds()) {
          const auto engine = engine_of(kind, modulus);
          const auto table = engine->fixed_base(pair, exponent_bits);
          const Words words = concatenate(exponents, table->exponent_words());
          Words out(count * engine->pair_words());
          table->power(words, out);
          results.push_back(out);
          table->power_vartime(words, out);
          results.push_back(out);
          for (std::size_t i = 0; i < count; ++i) {
            const auto each = std::span(out).subspan(i * engine->pair_words(), engine->pair_words());
            const std::size_t needed = std::max<std::size_t>(1, (exponents[i].bit_length() + 63) / 64);
            const Words exponent = words_of(exponents[i], needed);
            if (exponents[i].bit_length() != 0) {
              engine->power_public(pair, exponent, each);
            } else {
              engine->power_secret(pair, exponent, each);
            }
          }
          results.push_back(out);
        }
        for (const Words& result : results) CHECK(result == results.front());
      }
    }
  }
}

// Made with Python's integers: numbers modulo n^2 for an n of 192 bits that is no key.
TEST(engines_give_the_known_answers) {
  const BigInteger modulus = decimal("5065747543140484522436962203027190552037691707972398544331");
  const BigInteger left = decimal(
      "498670082030680666654682350044848356842211446947802270986779766856608112681351909008604055907748984566"
      "4762341118070");
  const BigInteger right = decimal(
      "102935173645138107075982004857898286281442738724467403447590248973339758323094235350484371658901406264"
      "75529011475497");
  const BigInteger plaintext = decimal("2458606333775892437868690539937954998960715729679042445863");
  const BigInteger exponent = decimal("216254443653314222743703846650801697494");
  const BigInteger product = decimal(
      "132713161315924753366428922017453603839528913003233101160344526318149322011414202489225262530809947042"
      "32851369515989");
  const BigInteger sum = decimal(
      "577139224990537256091837790117667612770973366253815329938923736685092375819108784904140076215124872250"
      "5603840583362");
  const BigInteger power = decimal(
      "104738971284741453076060827549075528164716625775376745867296396951734857784604251821212616003648042333"
      "97806095528501");
  for (const EngineKind kind : kinds()) {
    const auto engine = engine_of(kind, modulus);
    const auto pairs = [&](const BigInteger& residue) {
      Words pair(engine->pair_words());
      engine->to_pairs(words_of(residue, engine->pair_words()), pair);
      return pair;
    };
    const auto residue = [&](const Words& pair) {
      Words words(engine->pair_words());
      engine->to_residues(pair, words);
      return BigInteger::from_words(words);
    };
    Words out(engine->pair_words());
    engine->multiply(pairs(left), pairs(right), out);
    CHECK(residue(out) == product);
    out = pairs(left);
    engine->multiply_residues(words_of(right, engine->pair_words()), out);
    CHECK(residue(out) == product);
    out = pairs(left);
    engine->add_plaintexts(words_of(plaintext, engine->words()), out);
    CHECK(residue(out) == sum);
    engine->power_public(pairs(left), words_of(exponent, 2), out);
    CHECK(residue(out) == power);
    engine->power_secret(pairs(left), words_of(exponent, 2), out);
    CHECK(residue(out) == power);
    const auto table = engine->fixed_base(pairs(left), 128);
    table->power(words_of(exponent, 2), out);
    CHECK(residue(out) == power);
    table->power_vartime(words_of(exponent, 2), out);
    CHECK(residue(out) == power);
  }
}

}  // namespace paillier_engines_agree_tests
