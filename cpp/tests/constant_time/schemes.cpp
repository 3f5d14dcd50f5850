#include <cstdint>
#include <memory>
#include <span>

#include "ckks/block_encryption.h"
#include "ckks/decryptor.h"
#include "ckks/encryptor.h"
#include "ckks/flooding.h"
#include "ckks/keys.h"
#include "noise/gaussian.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/constant_time/operations.h"
#include "tests/constant_time/total.h"

namespace shieldfl::tests {
namespace {

using ckks::Packing;
using ckks::ParameterRequest;

const ParameterRequest kOnePrime{Packing::kExact, 64, 24, 20, {}};
const ParameterRequest kTwoPrimes{Packing::kExact, 1000, 40, 20, {}};
const ParameterRequest kSlots{Packing::kSlots, 64, 16, 12, {}};

// The same key for every variant: encryption knows its public half alone.
ckks::KeyPair recipient(const ParameterRequest& request) {
  return insecure_key_pair(ckks::Parameters::derive(request), 7);
}

SecretOperation block_encryption(const char* name, const ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto key = recipient(request).public_key;
            const ckks::ParameterFacts& facts = key->parameters()->facts();
            const std::size_t count = facts.values_per_block() - 5;
            // The slot encoder, SEAL's, is not constant-time in the values.
            const bool exact = facts.packing == Packing::kExact;
            std::mt19937_64 generator = secrets_of(exact ? variant : 0);
            std::uniform_int_distribution<std::int64_t> distribution(-facts.max_magnitude(),
                                                                     facts.max_magnitude());
            std::vector<std::int64_t> values(facts.values_per_block());
            for (std::size_t i = 0; i < count; ++i) values[i] = distribution(generator);
            if (exact) values = as_secret(values);
            return [key, values, count, seed = SecretSeeds().next(),
                    encryption = std::make_shared<ckks::BlockEncryption>(*key),
                    out = Frame(facts.format(FrameKind::kCkksBatch).bytes())]() mutable {
              RandomStream stream(seed, 3);
              encryption->encrypt(stream, values, count, out);
            };
          }};
}

// A client's part from floats to a frame. The mask is the client's own and no secret to it.
SecretOperation update_encryption(const char* name, const ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto key = recipient(request).public_key;
            const auto encryptor = std::make_shared<ckks::Encryptor>(key);
            const std::size_t size = key->parameters()->facts().degree + 77;
            std::mt19937_64 generator = secrets_of(variant);
            std::uniform_real_distribution<float> distribution(-1, 1);
            std::vector<float> values(size);
            for (float& value : values) value = distribution(generator);
            mask::Bitset mask = [size] {
              std::vector<std::uint8_t> chosen(size);
              for (std::size_t i = 0; i < size; ++i) chosen[i] = i % 3 != 1 ? 1 : 0;
              return mask::Bitset::from_bools(chosen);
            }();
            ckks::EncryptOptions options;
            options.weight = 0.75;
            options.threads = 1;
            return [encryptor, values = as_secret(values), mask, options,
                    frame = Frame(encryptor->frame_bytes(size, &mask, true))]() mutable {
              SecretSeeds seeds;
              encryptor->encrypt(scheme::ValuePieces<float>(values), &mask, options, seeds, frame);
            };
          }};
}

SecretOperation opening(const char* name, const ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto parameters = ckks::Parameters::derive(request);
            const auto total = std::make_shared<AmbiguousTotal>(parameters);
            const auto key = total->secret_key(variant);
            return [parameters, total, decryptor = std::make_shared<ckks::Decryptor>(key)] {
              keep(decryptor->open(total->view(), 1));
            };
          }};
}

SecretOperation key_loading(const char* name, const ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto parameters = ckks::Parameters::derive(request);
            const auto total = std::make_shared<AmbiguousTotal>(parameters);
            return [parameters, total, rows = total->secret_rows(variant)] {
              const ckks::SecretKey key(parameters, rows, Id{}, SecretSeeds().next());
              keep(key.export_secret());
            };
          }};
}

SecretOperation key_measurement(const char* name, const ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto parameters = ckks::Parameters::derive(request);
            const auto total = std::make_shared<AmbiguousTotal>(parameters);
            return [parameters, total, key = total->secret_key(variant),
                    public_key = insecure_key_pair(parameters, 7).public_key] {
              keep(ckks::measure_keys(*key, *public_key));
            };
          }};
}

// One pair for both variants: no other secret belongs to the public key.
SecretOperation key_import(const char* name, const ParameterRequest& request) {
  return {name, [request](int) {
            const ckks::KeyPair keys = recipient(request);
            return [public_key = keys.public_key, stored = as_secret(keys.secret_key->export_secret())] {
              keep(ckks::SecretKey::import_secret(*public_key, stored));
            };
          }};
}

SecretOperation flooding_seed(const char* name, const ParameterRequest& request) {
  return {name, [request](int variant) {
            const auto parameters = ckks::Parameters::derive(request);
            const auto total = std::make_shared<AmbiguousTotal>(parameters);
            return [parameters, total, key = total->secret_key(variant)] {
              keep(ckks::flooding_seed_for(*key, total->view()));
            };
          }};
}

SecretOperation private_noise() {
  return {"clipping and Gaussian noise", [](int) {
            std::vector<float> values(4096 + 100);
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3.0F;
            return [values]() mutable {
              SecretSeeds seeds;
              noise::clip_and_add_gaussian(values, values, 1.0, 0.01, seeds, 1);
            };
          }};
}

}  // namespace

std::vector<SecretOperation> block_operations() {
  return {block_encryption("encrypting a block, one prime", kOnePrime)};
}

std::vector<SecretOperation> long_operations() {
  return {block_encryption("encrypting a block, two primes", kTwoPrimes),
          update_encryption("encrypting an update, one prime", kOnePrime),
          update_encryption("encrypting an update, two primes", kTwoPrimes),
          opening("opening a total, one prime", kOnePrime),
          opening("opening a total, two primes", kTwoPrimes),
          key_loading("loading a secret key, one prime", kOnePrime),
          key_loading("loading a secret key, two primes", kTwoPrimes),
          key_measurement("measuring a key", kOnePrime),
          flooding_seed("the seed of flooding noise", kOnePrime),
          private_noise()};
}

std::vector<SecretOperation> valgrind_operations() {
  return {block_encryption("encrypting a block of slots", kSlots),
          key_import("loading a stored key", kTwoPrimes)};
}

}  // namespace shieldfl::tests
