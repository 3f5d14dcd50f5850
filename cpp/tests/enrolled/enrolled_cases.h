// What the tests of schemes in which clients enrol share: sessions, clients and their frames. `Types` names a
// scheme's classes.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kahe/encryptor.h"
#include "kahe/sum_key.h"
#include "pads/encryptor.h"
#include "pads/sum_key.h"
#include "tests/altered_frames.h"
#include "tests/check.h"

namespace shieldfl::tests {

using Values = std::vector<double>;

inline const Id kAuthority = {1, 2, 3};
inline const Id kUpdate = {7};

struct KaheTypes {
  using PublicKey = kahe::PublicKey;
  using ParameterRequest = kahe::ParameterRequest;
  using Encryptor = kahe::Encryptor;
  using SumKey = kahe::SumKey;
};

struct PadsTypes {
  using PublicKey = pads::PublicKey;
  using ParameterRequest = pads::ParameterRequest;
  using Encryptor = pads::Encryptor;
  using SumKey = pads::SumKey;
};

// Of the smallest ring, where there is one: each word of a total is below the one modulus.
template <typename Types>
typename Types::ParameterRequest small_request(std::uint32_t clients) {
  if constexpr (std::is_same_v<Types, KaheTypes>) {
    return {clients, 24, 20, 2048};
  } else {
    return {clients, 24, 20};
  }
}

// A session with keys of its clients at round 0, in authority number 0 and so on.
template <typename Types>
struct EnrolledSession {
  using Scheme = typename Types::PublicKey::Scheme;
  using Facts = typename Scheme::Facts;
  using View = enrolled::CiphertextView<Scheme>;
  using Request = enrolled::SumRequest<Scheme>;
  using Aggregator = enrolled::Aggregator<typename Types::PublicKey>;
  using Head = enrolled::FrameHead<Facts>;
  using SumKey = typename Types::SumKey;

  EnrolledSession(const typename Types::ParameterRequest& request, std::uint32_t clients,
                  std::uint8_t manifest = 1, std::size_t authorities = 1)
      : keys_of(authorities) {
    Digest digest{};
    digest[0] = manifest;
    key = std::make_shared<const typename Types::PublicKey>(Scheme::Parameters::derive(request), digest,
                                                            kAuthority, 0);
    for (std::size_t authority = 0; authority < authorities; ++authority) {
      for (std::uint32_t client = 0; client < clients; ++client) {
        Seed secret;
        secret.bytes[0] = static_cast<std::uint8_t>(client);
        secret.bytes[1] = static_cast<std::uint8_t>(client >> 8);
        secret.bytes[2] = static_cast<std::uint8_t>(authority);
        keys_of[authority].push_back(
            enrolled::ClientKey::of_session(Scheme::kName, secret, key->id(), client));
      }
    }
  }

  [[nodiscard]] const Facts& facts() const { return key->parameters()->facts(); }

  // The clients' keys that a request names, whatever else it says, at its round, as one authority has them.
  [[nodiscard]] std::vector<enrolled::ClientKey> keys_for(const Request& request,
                                                          std::size_t authority = 0) const {
    std::vector<enrolled::ClientKey> chosen;
    for (const enrolled::Participant& one : request.head.participants) {
      chosen.push_back(keys_of[authority].at(one.client));
      chosen.back().advance_to(request.head.layout.round);
    }
    return chosen;
  }

  [[nodiscard]] static Request request_of(const Frame& total) {
    return Request::of_total(View::parse(total, Scheme::kKinds.total), long_digest(total));
  }

  std::shared_ptr<const typename Types::PublicKey> key;
  std::vector<std::vector<enrolled::ClientKey>> keys_of;  // by authority and client
};

template <typename Facts>
Values random_values(const Facts& facts, std::size_t count, std::mt19937_64& generator) {
  const double limit = facts.fixed_point().value_limit();
  std::uniform_real_distribution<double> distribution(-limit, limit);
  Values values(count);
  for (double& value : values) value = distribution(generator);
  return values;
}

template <typename Types>
Frame encrypt(const EnrolledSession<Types>& session, std::uint32_t client, const Values& values,
              SeedSource& seeds, std::uint64_t round = 0,
              enrolled::EncryptOptions options = {.purpose = kUpdate}, const mask::Bitset* mask = nullptr) {
  const typename Types::Encryptor encryptor(session.key);
  std::vector<enrolled::ClientKey> keys;
  for (const auto& own : session.keys_of) {
    keys.push_back(own.at(client));
    keys.back().advance_to(round);
  }
  Frame frame(encryptor.frame_bytes(values.size(), mask, options.weight.has_value()));
  encryptor.encrypt(keys, scheme::ValuePieces<double>(values), mask, options, seeds, frame);
  return frame;
}

template <typename PublicKey>
Frame total_of(const enrolled::Aggregator<PublicKey>& aggregator) {
  Frame frame;
  aggregator.total([&](std::size_t bytes) {
    frame.resize(bytes);
    return std::span(frame);
  });
  return frame;
}

template <typename Types>
Frame total_of(const EnrolledSession<Types>& session, const std::vector<Frame>& batches,
               std::size_t threads = 2) {
  typename EnrolledSession<Types>::Aggregator aggregator(session.key, kUpdate, 0, {}, threads);
  for (const Frame& batch : batches) aggregator.add(batch);
  return total_of(aggregator);
}

// What an honest authority answers.
template <typename Types>
typename Types::SumKey answer(const EnrolledSession<Types>& session,
                              const typename EnrolledSession<Types>::Request& request,
                              std::size_t threads = 2, std::size_t authority = 0) {
  return Types::SumKey::of_request(*session.key, request, session.keys_for(request, authority), threads);
}

template <typename Types>
scheme::OpenedSums open(const EnrolledSession<Types>& session, const Frame& total,
                        std::span<const typename Types::SumKey> sum_keys, std::size_t threads = 2) {
  using View = typename EnrolledSession<Types>::View;
  return open(*session.key, View::parse(total, View::Scheme::kKinds.total), long_digest(total), sum_keys,
              threads);
}

template <typename Types>
scheme::OpenedSums open(const EnrolledSession<Types>& session, const Frame& total,
                        const typename Types::SumKey& sum_key, std::size_t threads = 2) {
  return open(session, total, std::span(&sum_key, 1), threads);
}

template <typename Types>
scheme::OpenedSums open(const EnrolledSession<Types>& session, const Frame& total) {
  std::vector<typename Types::SumKey> sum_keys;
  for (std::size_t authority = 0; authority < session.keys_of.size(); ++authority) {
    sum_keys.push_back(answer(session, session.request_of(total), 2, authority));
  }
  return open(session, total, std::span<const typename Types::SumKey>(sum_keys));
}

// Where the fields of a batch, a total or a sum request lie, by docs/reference/wire-format.md.
struct SumOffsets {
  explicit SumOffsets(std::size_t facts_bytes) : round(facts + facts_bytes) {}

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

// A test that is the same for every such scheme: a template of Types.
#define TEST_OF_BOTH(name)                                                                  \
  template <typename Types>                                                                 \
  static void check_##name();                                                               \
  static const ::shieldfl::tests::Registration name##_under_kahe(                           \
      __FILE__, #name "_under_kahe", [] { check_##name<::shieldfl::tests::KaheTypes>(); }); \
  static const ::shieldfl::tests::Registration name##_under_pads(                           \
      __FILE__, #name "_under_pads", [] { check_##name<::shieldfl::tests::PadsTypes>(); }); \
  template <typename Types>                                                                 \
  static void check_##name()
