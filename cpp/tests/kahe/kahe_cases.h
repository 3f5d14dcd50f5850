// What the tests of key-additive encryption share: sessions, clients and their frames.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kahe/aggregator.h"
#include "kahe/encryptor.h"
#include "kahe/sum_key.h"
#include "tests/altered_frames.h"

namespace shieldfl::tests {

using Values = std::vector<double>;

inline const Id kAuthority = {1, 2, 3};
inline const Id kUpdate = {7};

// A session with keys of its clients at round 0.
struct Session {
  Session(const kahe::ParameterRequest& request, std::uint32_t clients, std::uint8_t manifest = 1) {
    Digest digest{};
    digest[0] = manifest;
    key = std::make_shared<const kahe::PublicKey>(kahe::Parameters::derive(request), digest, kAuthority, 0);
    for (std::uint32_t client = 0; client < clients; ++client) {
      Seed secret;
      secret.bytes[0] = static_cast<std::uint8_t>(client);
      secret.bytes[1] = static_cast<std::uint8_t>(client >> 8);
      keys.push_back(kahe::ClientKey::of_session(secret, key->id(), client));
    }
  }

  [[nodiscard]] const kahe::ParameterFacts& facts() const { return key->parameters()->facts(); }

  // The clients' keys that a request names, whatever else it says, at its round.
  [[nodiscard]] std::vector<kahe::ClientKey> keys_for(const kahe::SumRequest& request) const {
    std::vector<kahe::ClientKey> chosen;
    for (const kahe::Participant& one : request.head.participants) {
      chosen.push_back(keys.at(one.client));
      chosen.back().advance_to(request.head.layout.round);
    }
    return chosen;
  }

  std::shared_ptr<const kahe::PublicKey> key;
  std::vector<kahe::ClientKey> keys;
};

inline Values random_values(const kahe::ParameterFacts& facts, std::size_t count,
                            std::mt19937_64& generator) {
  const double limit = facts.fixed_point().value_limit();
  std::uniform_real_distribution<double> distribution(-limit, limit);
  Values values(count);
  for (double& value : values) value = distribution(generator);
  return values;
}

inline Frame encrypt(const Session& session, std::uint32_t client, const Values& values, SeedSource& seeds,
                     std::uint64_t round = 0, kahe::EncryptOptions options = {.purpose = kUpdate},
                     const mask::Bitset* mask = nullptr) {
  const kahe::Encryptor encryptor(session.key);
  kahe::ClientKey key = session.keys.at(client);
  key.advance_to(round);
  Frame frame(encryptor.frame_bytes(values.size(), mask, options.weight.has_value()));
  encryptor.encrypt(key, std::span<const double>(values), mask, options, seeds, frame);
  return frame;
}

inline Frame total_of(const kahe::Aggregator& aggregator) {
  Frame frame;
  aggregator.total([&](std::size_t bytes) {
    frame.resize(bytes);
    return std::span(frame);
  });
  return frame;
}

inline Frame total_of(const Session& session, const std::vector<Frame>& batches, std::size_t threads = 2) {
  kahe::Aggregator aggregator(session.key, kUpdate, 0, {}, threads);
  for (const Frame& batch : batches) aggregator.add(batch);
  return total_of(aggregator);
}

inline kahe::SumRequest request_of(const Frame& total) {
  return kahe::SumRequest::of_total(kahe::CiphertextView::parse(total, FrameKind::kKaheTotal),
                                    long_digest(total));
}

// What an honest authority answers.
inline kahe::SumKey answer(const Session& session, const kahe::SumRequest& request, std::size_t threads = 2) {
  return kahe::SumKey::of_request(*session.key, request, session.keys_for(request), threads);
}

inline kahe::OpenedSums open(const Session& session, const Frame& total, const kahe::SumKey& sum_key,
                             std::size_t threads = 2) {
  return kahe::open(*session.key, kahe::CiphertextView::parse(total, FrameKind::kKaheTotal),
                    long_digest(total), sum_key, threads);
}

inline kahe::OpenedSums open(const Session& session, const Frame& total) {
  return open(session, total, answer(session, request_of(total)));
}

// Where the fields of a batch, a total or a sum request lie, by docs/wire-format.md.
struct KaheOffsets {
  explicit KaheOffsets(const kahe::ParameterFacts& parameter_facts)
      : round(facts + kahe::ParameterFacts::encoded_bytes(parameter_facts.primes.size())) {}

  std::size_t facts = kFrameHeaderBytes;
  std::size_t round;
  std::size_t mask_id = round + 8;
  std::size_t value_count = mask_id + 16;
  std::size_t flags = value_count + 8;
  std::size_t clients = flags + 4;
  std::size_t purpose = clients + 4;
  std::size_t part = purpose + 16;
  std::size_t participants = part + 4;
  // Of participant number i.
  [[nodiscard]] std::size_t client(std::size_t i) const { return participants + 20 * i; }
  [[nodiscard]] std::size_t frame_id(std::size_t i) const { return client(i) + 4; }
  [[nodiscard]] std::size_t payload(std::size_t count) const { return client(count); }
};

}  // namespace shieldfl::tests
