// What the tests of encryption share: keys, batches of random clients, and the sums they must open to.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include "ckks/aggregator.h"
#include "ckks/block_reader.h"
#include "ckks/decryptor.h"
#include "ckks/encryptor.h"
#include "ckks/keys.h"
#include "ring/sampler.h"
#include "tests/altered_frames.h"

namespace shieldfl::tests {

using Values = std::vector<double>;

// A key pair that anybody can draw again, so that statistics and fuzzing can be repeated: s and e as an
// encryption's u and e are drawn, a from 64 bits a residue.
inline ckks::KeyPair insecure_key_pair(const ckks::ParametersPointer& parameters, std::uint64_t seed) {
  InsecureTestRandom seeds(seed);
  RandomStream stream(seeds.next(), 0);
  const std::size_t degree = parameters->facts().degree;
  std::vector<std::int8_t> s(degree);
  std::vector<std::int8_t> e(degree);
  ring::sample_ternary(stream, s);
  ring::sample_error(stream, e);
  std::vector<std::uint64_t> public0;
  std::vector<std::uint64_t> public1;
  SecretVector<std::uint64_t> secret;
  for (const ring::Ntt& ntt : parameters->ntts()) {
    const std::uint64_t q = ntt.modulus().value;
    const auto transformed = [&](const std::vector<std::int8_t>& polynomial) {
      std::vector<std::uint64_t> row;
      for (const std::int8_t coefficient : polynomial) row.push_back(ring::residue(coefficient, q));
      ntt.forward(row);
      return row;
    };
    const auto s_row = transformed(s);
    const auto e_row = transformed(e);
    for (std::size_t i = 0; i < degree; ++i) {
      public1.push_back(stream.next_u64() % q);
      const std::uint64_t product = ring::multiply(public1.back(), ring::make_factor(s_row[i], q), q);
      public0.push_back(ring::add(q - product, q - e_row[i], q) % q);
      secret.push_back(s_row[i]);
    }
  }
  auto public_key = std::make_shared<const ckks::PublicKey>(parameters, public0, public1);
  auto secret_key =
      std::make_shared<const ckks::SecretKey>(parameters, std::move(secret), public_key->id(), seeds.next());
  return {std::move(public_key), std::move(secret_key)};
}

// A key pair for these parameters, the same one for every test.
inline const ckks::KeyPair& key_pair(const ckks::ParameterRequest& request) {
  static std::map<std::tuple<int, std::uint32_t, unsigned, unsigned, std::uint32_t>, ckks::KeyPair> pairs;
  const auto name = std::tuple(static_cast<int>(request.packing), request.max_clients, request.value_bits,
                               request.fraction_bits, request.ring_degree.value_or(0));
  const auto found = pairs.find(name);
  if (found != pairs.end()) return found->second;
  return pairs.emplace(name, insecure_key_pair(ckks::Parameters::derive(request), 2026)).first->second;
}

inline const ckks::ParameterFacts& facts_of(const ckks::KeyPair& keys) {
  return keys.public_key->parameters()->facts();
}

// Uniform over the whole range that parameters allow.
inline Values random_values(const ckks::Parameters& parameters, std::size_t count,
                            std::mt19937_64& generator) {
  std::uniform_real_distribution<double> distribution(-parameters.value_limit(), parameters.value_limit());
  Values values(count);
  for (double& value : values) value = distribution(generator);
  return values;
}

struct EncryptedBatch {
  Frame frame;
  scheme::ValueCounts counts;
};

template <typename T>
EncryptedBatch encrypt_batch(const ckks::KeyPair& keys, const std::vector<T>& values, SeedSource& seeds,
                             const ckks::EncryptOptions& options = {}, const mask::Bitset* mask = nullptr) {
  const ckks::Encryptor encryptor(keys.public_key);
  EncryptedBatch batch;
  batch.frame.resize(encryptor.frame_bytes(values.size(), mask, options.weight.has_value()));
  batch.counts = encryptor.encrypt(scheme::ValuePieces<T>(values), mask, options, seeds, batch.frame);
  return batch;
}

inline Frame encrypt(const ckks::KeyPair& keys, const Values& values, SeedSource& seeds,
                     const ckks::EncryptOptions& options = {}, const mask::Bitset* mask = nullptr) {
  return encrypt_batch(keys, values, seeds, options, mask).frame;
}

inline Frame total_of(const ckks::Aggregator& aggregator) {
  Frame frame;
  aggregator.total([&](std::size_t bytes) {
    frame.resize(bytes);
    return std::span(frame);
  });
  return frame;
}

inline Frame total_of(const ckks::KeyPair& keys, const std::vector<Frame>& batches) {
  ckks::Aggregator aggregator(keys.public_key, {}, 2);
  for (const Frame& batch : batches) aggregator.add(batch);
  return total_of(aggregator);
}

inline ckks::OpenedSums open(const ckks::KeyPair& keys, const Frame& total, std::size_t threads = 2) {
  return ckks::Decryptor(keys.secret_key)
      .open(ckks::CiphertextView::parse(total, FrameKind::kCkksTotal), threads);
}

// The residues of one ciphertext: c0 then c1, a row for each prime.
inline std::vector<std::uint64_t> residues_of(const ckks::CiphertextView& frame, std::size_t block) {
  std::vector<std::uint64_t> residues(frame.facts.block_words());
  ckks::BlockReader(frame).read(block, residues);
  return residues;
}

// Those of c0 + c1 s.
inline std::vector<std::uint64_t> decrypted(const ckks::KeyPair& keys, const ckks::CiphertextView& frame,
                                            std::size_t block) {
  std::vector<std::uint64_t> residues = residues_of(frame, block);
  ckks::Decryptor(keys.secret_key).decrypt(residues);
  residues.resize(residues.size() / 2);
  return residues;
}

// A real number as the integer that travels for it.
inline std::int64_t fixed_point(const ckks::ParameterFacts& facts, double value) {
  return std::llrint(std::ldexp(value, facts.fraction_bits));
}

inline double from_fixed_point(const ckks::ParameterFacts& facts, std::int64_t value) {
  return std::ldexp(static_cast<double>(value), -facts.fraction_bits);
}

// Where the fields of a batch or total lie, by docs/reference/wire-format.md.
struct FrameOffsets {
  explicit FrameOffsets(const ckks::ParameterFacts& parameter_facts)
      : round(facts + ckks::ParameterFacts::encoded_bytes(parameter_facts.primes.size())) {}

  std::size_t facts = kFrameHeaderBytes;
  std::size_t round;
  std::size_t mask_id = round + 8;
  std::size_t value_count = mask_id + 16;
  std::size_t flags = value_count + 8;
  std::size_t clients = flags + 4;
  std::size_t frame_ids = clients + 4;
  [[nodiscard]] std::size_t payload(std::size_t client_count) const { return frame_ids + 16 * client_count; }
};

}  // namespace shieldfl::tests
