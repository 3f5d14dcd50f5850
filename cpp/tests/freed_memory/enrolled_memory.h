// Clients with secrets that look random, and what they and an authority hold: what the tests of freed memory
// share, whatever the scheme.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/enrolled/enrolled_cases.h"
#include "tests/freed_memory/secrets.h"

namespace shieldfl::tests {

inline constexpr std::uint64_t kRound = 3;
inline constexpr std::uint32_t kClients = 3;

// The parameters that a scheme's tests go through.
template <typename Types>
std::vector<typename Types::ParameterRequest> requests_for_memory();

// Seeds that look random, as a system's do, and can be drawn again.
class KnownSeeds final : public SeedSource {
 public:
  explicit KnownSeeds(std::uint64_t first) : generator_(first) {}
  Seed next() override {
    Seed seed;
    for (std::uint8_t& byte : seed.bytes) byte = static_cast<std::uint8_t>(generator_());
    return seed;
  }

 private:
  std::mt19937_64 generator_;
};

inline Seed long_term_secret(std::uint32_t client) {
  return KnownSeeds(1000 + client).next();
}

template <typename Types>
enrolled::ClientKey client_key(const EnrolledSession<Types>& session, std::uint32_t client,
                               std::uint64_t round = kRound) {
  enrolled::ClientKey key = enrolled::ClientKey::of_session(
      EnrolledSession<Types>::Scheme::kName, long_term_secret(client), session.key->id(), client);
  key.advance_to(round);
  return key;
}

template <typename Types>
void add_key(Secrets& secrets, const EnrolledSession<Types>& session, std::uint32_t client) {
  secrets.add("what client and authority share", long_term_secret(client).bytes);
  for (std::uint64_t round = 0; round <= kRound; ++round)
    secrets.add("the key of round " + std::to_string(round),
                client_key(session, client, round).secret().bytes);
}

// Of the one frame in a client's batch.
template <typename Types>
Seed seed_of_frame(const EnrolledSession<Types>& session, std::uint32_t client,
                   const typename EnrolledSession<Types>::View& batch) {
  return enrolled::frame_seed(client_key(session, client), session.key->context_of(batch.head),
                              batch.head.participants.front().frame_id);
}

// Two blocks, and some of a third.
template <typename Types>
Values values_of(const EnrolledSession<Types>& session, std::uint32_t client) {
  std::mt19937_64 generator(client);
  return random_values(session.facts(), 2 * session.facts().values_per_block() + 99, generator);
}

template <typename Types>
Frame encrypted(const EnrolledSession<Types>& session, std::uint32_t client, const Values& values,
                const mask::Bitset* mask, bool clip = false) {
  const typename Types::Encryptor encryptor(session.key);
  const enrolled::EncryptOptions options{.purpose = kUpdate, .clip = clip, .threads = 1};
  Frame frame(encryptor.frame_bytes(values.size(), mask, false));
  KnownSeeds seeds(client);
  const enrolled::ClientKey key = client_key(session, client);
  encryptor.encrypt(std::span(&key, 1), scheme::ValuePieces<double>(values), mask, options, seeds, frame);
  return frame;
}

// A round of kClients, of whose session an authority has the keys.
template <typename Types>
struct EnrolledRound {
  using Session = EnrolledSession<Types>;
  using View = typename Session::View;
  using SumKey = typename Types::SumKey;

  explicit EnrolledRound(const typename Types::ParameterRequest& request) : session(request, 0) {
    for (std::uint32_t client = 0; client < kClients; ++client)
      batches.push_back(encrypted(session, client, values_of(session, client), nullptr));
    total = total_of(session, batches, 1);
  }

  [[nodiscard]] std::vector<enrolled::ClientKey> keys() const {
    std::vector<enrolled::ClientKey> all;
    for (std::uint32_t client = 0; client < kClients; ++client) all.push_back(client_key(session, client));
    return all;
  }
  [[nodiscard]] SumKey sum_key(const Frame& of) const {
    return SumKey::of_request(*session.key, Session::request_of(of), keys(), 1);
  }
  // A copy that is the caller's own.
  [[nodiscard]] Frame sum_key_frame(const Frame& of) const {
    const auto made = sum_key(of).to_frame();
    return {made.begin(), made.end()};
  }

  Session session;
  std::vector<Frame> batches;
  Frame total;
};

}  // namespace shieldfl::tests
