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
#include "ckks/decryptor.h"
#include "ckks/encryptor.h"
#include "ckks/keys.h"
#include "tests/altered_frames.h"

namespace shieldfl::tests {

using Values = std::vector<double>;

// A key pair for these parameters; the same one for every test of a process.
inline const ckks::KeyPair& key_pair(const ckks::ParameterRequest& request) {
  static std::map<std::tuple<int, std::uint32_t, unsigned, unsigned, std::uint32_t>, ckks::KeyPair> pairs;
  const auto name = std::tuple(static_cast<int>(request.packing), request.max_clients, request.value_bits,
                               request.fraction_bits, request.ring_degree.value_or(0));
  const auto found = pairs.find(name);
  if (found != pairs.end()) return found->second;
  SystemSeedSource seeds;
  return pairs.emplace(name, ckks::generate_keys(ckks::Parameters::derive(request), seeds)).first->second;
}

inline const ckks::ParameterFacts& facts_of(const ckks::KeyPair& keys) {
  return keys.public_key->parameters()->facts();
}

// Uniform over the whole range that parameters allow.
inline Values random_values(const ckks::Parameters& parameters, std::size_t count, std::mt19937_64& generator) {
  std::uniform_real_distribution<double> distribution(-parameters.value_limit(), parameters.value_limit());
  Values values(count);
  for (double& value : values) value = distribution(generator);
  return values;
}

inline Frame encrypt(const ckks::KeyPair& keys, const Values& values, SeedSource& seeds,
                     const ckks::EncryptOptions& options = {}, const mask::Bitset* mask = nullptr) {
  return ckks::Encryptor(keys.public_key).encrypt(std::span<const double>(values), mask, options, seeds).frame;
}

inline Frame total_of(const ckks::KeyPair& keys, const std::vector<Frame>& batches) {
  ckks::Aggregator aggregator(keys.public_key, std::nullopt, 2);
  for (const Frame& batch : batches) aggregator.add(batch);
  return aggregator.total();
}

inline ckks::OpenedSums open(const ckks::KeyPair& keys, const Frame& total, std::size_t threads = 2) {
  return ckks::Decryptor(keys.secret_key)
      .open(ckks::CiphertextView::parse(total, FrameKind::kCkksTotal), threads);
}

// A real number as the integer that travels for it.
inline std::int64_t fixed_point(const ckks::ParameterFacts& facts, double value) {
  return std::llrint(std::ldexp(value, facts.fraction_bits));
}

inline double from_fixed_point(const ckks::ParameterFacts& facts, std::int64_t value) {
  return std::ldexp(static_cast<double>(value), -facts.fraction_bits);
}

// Where the fields of a batch or total lie, by docs/wire-format.md.
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
