// Batches of random clients, and the sums they must open to.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "mask/bitset.h"
#include "paillier/aggregator.h"
#include "paillier/decryptor.h"
#include "paillier/encryptor.h"
#include "tests/altered_frames.h"
#include "tests/paillier/paillier_cases.h"

namespace shieldfl::tests {

using Values = std::vector<double>;
using Integers = std::vector<std::int64_t>;

inline const paillier::Parameters kDenseParameters({.key_bits = 2048,
                                                    .packing = paillier::Packing::kDense,
                                                    .value_bits = 24,
                                                    .fraction_bits = 20,
                                                    .max_clients = 4,
                                                    .max_weight = 10});
inline const paillier::Parameters kSingleParameters({.key_bits = 2048,
                                                     .packing = paillier::Packing::kSingle,
                                                     .value_bits = 24,
                                                     .fraction_bits = 20,
                                                     .max_clients = 4,
                                                     .max_weight = 10});

// The same parameters but for what `change` alters in their facts.
template <typename Change>
paillier::Parameters altered(const paillier::Parameters& parameters, Change change) {
  paillier::ParameterFacts facts = parameters.facts();
  change(facts);
  return paillier::Parameters(facts);
}

inline const paillier::Parameters kClassicalParameters =
    altered(kDenseParameters, [](auto& facts) { facts.randomizer = paillier::Randomizer::kClassical; });

// Uniform over the whole range that parameters allow, its ends among them, as integers.
inline Integers random_integers(const paillier::Parameters& parameters, std::size_t count,
                                std::mt19937_64& generator) {
  const std::int64_t limit = parameters.max_magnitude();
  std::uniform_int_distribution<std::int64_t> distribution(-limit, limit);
  Integers integers(count);
  for (std::int64_t& integer : integers) integer = distribution(generator);
  if (count > 2) {
    integers[0] = limit;
    integers[1] = -limit;
  }
  return integers;
}

// The values that travel as these integers.
inline Values to_values(const paillier::Parameters& parameters, const Integers& integers) {
  Values values;
  for (const std::int64_t integer : integers) values.push_back(parameters.fixed_point().to_real(integer));
  return values;
}

template <typename T>
Frame encrypt(const paillier::PublicKey& key, const std::vector<T>& values, SeedSource& seeds,
              const paillier::EncryptOptions& options = {}, const mask::Bitset* mask = nullptr,
              paillier::RandomizerPool* pool = nullptr) {
  const paillier::Encryptor encryptor({std::shared_ptr<void>(), &key});
  Frame frame(encryptor.frame_bytes(values.size(), mask, options.weight.has_value()));
  encryptor.encrypt(scheme::ValuePieces<T>(values), mask, options, seeds, pool, frame);
  return frame;
}

template <typename T>
Frame encrypt_in_union(const paillier::PublicKey& key, const std::vector<T>& values,
                       const paillier::UnionOrder& order, const mask::Bitset& mask, SeedSource& seeds,
                       const paillier::EncryptOptions& options = {}) {
  const paillier::Encryptor encryptor({std::shared_ptr<void>(), &key});
  Frame frame(encryptor.union_frame_bytes(order, mask));
  encryptor.encrypt_in_union(std::span<const T>(values), order, mask, options, seeds, nullptr, frame);
  return frame;
}

inline Frame total_of(const paillier::Aggregator& aggregator) {
  Frame frame;
  aggregator.total([&](std::size_t bytes) {
    frame.resize(bytes);
    return std::span(frame);
  });
  return frame;
}

inline paillier::CiphertextView batch_view(const Frame& frame) {
  return paillier::CiphertextView::parse(frame, FrameKind::kPaillierBatch);
}

inline paillier::CiphertextView total_view(const Frame& frame) {
  return paillier::CiphertextView::parse(frame, FrameKind::kPaillierTotal);
}

inline paillier::OpenedSums open(const paillier::KeyPair& keys, const Frame& total) {
  return paillier::Decryptor(keys.public_key, keys.secret_key).open(total_view(total), 2);
}

// The sums as the integers that travelled.
inline Integers open_integers(const paillier::KeyPair& keys, const Frame& total) {
  Integers integers;
  for (const double sum : open(keys, total).values) {
    integers.push_back(std::llrint(std::ldexp(sum, keys.public_key->parameters().facts().fraction_bits)));
  }
  return integers;
}

// sum += weight * added.
inline void add_times(Integers& sum, std::int64_t weight, const Integers& added) {
  if (sum.empty()) sum.resize(added.size());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * added[i];
}

// Where the fields of a batch or total lie, by docs/reference/wire-format.md.
struct PaillierOffsets {
  static constexpr std::size_t kParameters = kFrameHeaderBytes;
  static constexpr std::size_t kRound = kParameters + paillier::ParameterFacts::kEncodedBytes;
  static constexpr std::size_t kMaskId = kRound + 8;
  static constexpr std::size_t kValueCount = kMaskId + 16;
  static constexpr std::size_t kFlags = kValueCount + 8;
  static constexpr std::size_t kClients = kFlags + 4;
  static constexpr std::size_t kTotalWeight = kClients + 4;
  static constexpr std::size_t kFrameIds = kTotalWeight + 8;
  // Of a frame that leaves nothing out.
  static constexpr std::size_t payload(std::size_t clients) { return kFrameIds + 16 * clients; }
};

// A copy with another number as the residue in this place of the payload.
inline Frame with_residue(const Frame& frame, const paillier::CiphertextView& view, std::size_t place,
                          const paillier::BigInteger& residue) {
  Frame altered = frame;
  const std::size_t bytes = view.parameters.ciphertext_bytes();
  const std::vector<std::uint8_t> big_endian = to_bytes(residue, bytes);
  const auto offset = static_cast<std::size_t>(view.payload.data() - view.frame.data()) + place * bytes;
  std::copy(big_endian.begin(), big_endian.end(), altered.begin() + static_cast<std::ptrdiff_t>(offset));
  reseal(altered);
  return altered;
}

}  // namespace shieldfl::tests
