#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "paillier/encryptor.h"
#include "paillier/keys.h"
#include "paillier/packing.h"
#include "paillier/randomizers.h"
#include "tests/altered_frames.h"
#include "tests/constant_time/operations.h"
#include "tests/paillier/paillier_cases.h"

namespace shieldfl::tests {
namespace {

using paillier::Engine;
using paillier::EngineKind;
using Words = std::vector<std::uint64_t>;

// Long enough that carries run through several limbs, and not a whole number of them.
constexpr std::size_t kModulusWords = 4;
constexpr std::size_t kNumbers = 3;

EngineKind engine_in_use() {
  return paillier::engine_for(instruction_set());
}

Words odd_words(std::mt19937_64& generator, std::size_t words) {
  Words drawn(words);
  for (std::uint64_t& word : drawn) word = generator();
  drawn.front() |= 1;
  drawn.back() |= std::uint64_t{1} << 63;
  return drawn;
}

// Numbers below any modulus of odd_words(): their top words are smaller.
Words numbers_below(std::mt19937_64& generator, std::size_t numbers, std::size_t words) {
  Words drawn(numbers * words);
  for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = generator() >> (i % words == words - 1 ? 2 : 0);
  return drawn;
}

std::shared_ptr<const Engine> public_engine() {
  std::mt19937_64 generator(7);
  return Engine::make(engine_in_use(), odd_words(generator, kModulusWords));
}

SecretOperation fixed_base_power() {
  return {"Paillier: powers of one base", [](int variant) {
            const auto engine = public_engine();
            std::mt19937_64 generator(8);
            const Words base = numbers_below(generator, 2, kModulusWords);
            const auto table = std::shared_ptr<const paillier::FixedBase>(engine->fixed_base(base, 70));
            std::mt19937_64 secrets = secrets_of(variant);
            Words exponents(kNumbers * table->exponent_words());
            for (std::uint64_t& word : exponents) word = secrets();
            return [engine, table, exponents = as_secret(exponents),
                    pairs = Words(kNumbers * engine->pair_words())]() mutable {
              table->power(exponents, pairs);
            };
          }};
}

SecretOperation hiding_plaintexts() {
  return {"Paillier: hiding plaintexts", [](int variant) {
            const auto engine = public_engine();
            std::mt19937_64 secrets = secrets_of(variant);
            return [engine, plaintexts = as_secret(numbers_below(secrets, kNumbers, kModulusWords)),
                    pairs = as_secret(numbers_below(secrets, 2 * kNumbers, kModulusWords)),
                    residues = Words(kNumbers * engine->pair_words())]() mutable {
              engine->add_plaintexts(plaintexts, pairs);
              engine->to_residues(pairs, residues);
            };
          }};
}

// What a decryption modulo the square of a secret prime does: nothing here needs it to be a prime.
SecretOperation power_of_a_secret(const char* name, std::size_t modulus_words, std::size_t exponent_words) {
  return {name, [modulus_words, exponent_words](int variant) {
            std::mt19937_64 secrets = secrets_of(variant);
            const Words modulus = as_secret(odd_words(secrets, modulus_words));
            const Words exponent = as_secret(odd_words(secrets, exponent_words));
            std::mt19937_64 generator(9);
            return [modulus, exponent, residues = numbers_below(generator, kNumbers, 2 * modulus_words),
                    pairs = Words(2 * kNumbers * modulus_words)]() mutable {
              const auto engine = Engine::make(engine_in_use(), modulus);
              engine->to_pairs(residues, pairs);
              engine->power_secret(pairs, exponent, pairs);
            };
          }};
}

// r^n for a secret r and a public n: some windows of it, with zeros between them.
SecretOperation power_of_a_secret_base() {
  return {"Paillier: powers of secret bases", [](int variant) {
            const auto engine = public_engine();
            std::mt19937_64 secrets = secrets_of(variant);
            return [engine, bases = as_secret(numbers_below(secrets, 2 * kNumbers, kModulusWords)),
                    out = Words(kNumbers * engine->pair_words())]() mutable {
              engine->power_public(bases, Words{0x5670}, out);
            };
          }};
}

// No secret is in a modulus here: the numbers are of a real key's length, the arithmetic is short.
SecretOperation packing() {
  return {"Paillier: packing and unpacking", [](int variant) {
            const paillier::Parameters parameters({.key_bits = 2048});
            std::mt19937_64 generator(10);
            const Words modulus = odd_words(generator, parameters.modulus_words());
            std::mt19937_64 secrets = secrets_of(variant);
            const std::int64_t limit = parameters.fixed_point().max_magnitude();
            std::uniform_int_distribution<std::int64_t> distribution(-limit, limit);
            std::vector<std::int64_t> values(parameters.values_per_ciphertext());
            for (std::int64_t& value : values) value = distribution(secrets);
            return [parameters, modulus, values = as_secret(values), sums = values,
                    plaintext = Words(modulus.size())]() mutable {
              paillier::pack_values(parameters, values, modulus, plaintext);
              keep(paillier::unpack_sums(parameters, plaintext, modulus, 1, sums));
            };
          }};
}

paillier::Parameters small_key(paillier::Randomizer randomizer) {
  return paillier::Parameters({.key_bits = 2048, .randomizer = randomizer});
}

SecretOperation update_encryption(const char* name, paillier::Randomizer randomizer) {
  return {name, [randomizer](int variant) {
            const auto key = key_pair(small_key(randomizer)).public_key;
            if (randomizer == paillier::Randomizer::kShortExponent) keep(key->fixed_base());
            std::mt19937_64 secrets = secrets_of(variant);
            std::uniform_real_distribution<float> distribution(-1, 1);
            std::vector<float> values(key->parameters().values_per_ciphertext() + 5);
            for (float& value : values) value = distribution(secrets);
            const auto encryptor = std::make_shared<paillier::Encryptor>(key);
            paillier::EncryptOptions options;
            options.weight = 0.75;
            options.threads = 1;
            return [encryptor, options, values = as_secret(values),
                    frame = Frame(encryptor->frame_bytes(values.size(), nullptr, true))]() mutable {
              SecretSeeds seeds;
              encryptor->encrypt(scheme::ValuePieces<float>(values), nullptr, options, seeds, nullptr, frame);
            };
          }};
}

// The same key for every variant: no other one belongs to the public half.
SecretOperation decryption() {
  return {"Paillier: loading a secret key and decrypting", [](int) {
            const auto parameters = small_key(paillier::Randomizer::kShortExponent);
            const auto key = key_pair(parameters).public_key;
            std::mt19937_64 generator(11);
            return [key, factors = as_secret(insecure_factors(parameters.facts().key_bits)),
                    residues = numbers_below(generator, kNumbers, parameters.ciphertext_words()),
                    plaintexts = Words(kNumbers * parameters.modulus_words())]() mutable {
              const paillier::SecretKey secret(*key, factors);
              secret.decrypt(residues, plaintexts);
              keep(secret.export_secret());
            };
          }};
}

}  // namespace

std::vector<SecretOperation> paillier_operations() {
  // The shortest modulus that an engine takes, which carries run through all the same. That digits of a
  // secret exponent lie in two words is followed in the powers of one base.
  return {fixed_base_power(), hiding_plaintexts(), power_of_a_secret_base(), packing()};
}

std::vector<SecretOperation> wide_paillier_operations() {
  return {power_of_a_secret("Paillier: powers modulo a secret square", 2, 1),
          power_of_a_secret("Paillier: longer powers modulo a longer secret square", kModulusWords, 2)};
}

std::vector<SecretOperation> long_paillier_operations() {
  return {update_encryption("Paillier: encrypting an update", paillier::Randomizer::kShortExponent),
          update_encryption("Paillier: the same, classical", paillier::Randomizer::kClassical), decryption()};
}

}  // namespace shieldfl::tests
