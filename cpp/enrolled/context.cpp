#include "enrolled/context.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>

#include "common/error.h"

namespace shieldfl::enrolled {
namespace {

// What a digest is taken of.
class Input {
 public:
  Input() = default;
  // It begins with what is derived, and ends that by a zero byte, so that no label begins another.
  Input(std::string_view scheme, std::string_view purpose) {
    const std::string label = "shieldfl " + std::string(scheme) + " 1 " + std::string(purpose);
    bytes_.assign(label.begin(), label.end());
    bytes_.push_back(0);
  }

  Input& put(std::span<const std::uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  template <typename T>
    requires std::is_integral_v<T>
  Input& put(T value) {
    return put(std::span(reinterpret_cast<const std::uint8_t*>(&value), sizeof value));
  }
  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

Seed derive(const Seed& key, const Input& input) {
  Digest digest = long_digest(input.bytes(), key.bytes);
  Seed seed;
  seed.bytes = digest;
  secure_wipe(digest.data(), digest.size());
  return seed;
}

Seed ratchet(std::string_view scheme, const Seed& secret) {
  return derive(secret, Input(scheme, "ratchet"));
}

void check_secrets(std::size_t keys, std::span<const std::uint8_t> secrets) {
  if (secrets.size() != keys * kSeedBytes) {
    throw Error(ErrorCode::kParameter, "each key has a secret of 32 bytes");
  }
}

Seed secret_at(std::span<const std::uint8_t> secrets, std::size_t index) {
  Seed secret;
  std::ranges::copy(secrets.subspan(index * kSeedBytes, kSeedBytes), secret.bytes.begin());
  return secret;
}

void check_not_far_ahead(std::uint64_t stands, std::uint64_t round) {
  if (round > stands && round - stands > ClientKey::kMostRoundsAhead) {
    throw Error(ErrorCode::kPolicy, "round " + std::to_string(round) + " is more than " +
                                        std::to_string(ClientKey::kMostRoundsAhead) + " rounds after round " +
                                        std::to_string(stands) +
                                        ", where the client's key is: begin a new session");
  }
}

}  // namespace

std::vector<std::uint8_t> SumContext::encode() const {
  Input input;
  input.put(layout.parameter_id).put(manifest).put(authority).put(epoch);
  input.put(layout.round).put(purpose).put(part);
  input.put(layout.mask_id).put(layout.value_count).put(static_cast<std::uint8_t>(layout.weighted));
  return {input.bytes().begin(), input.bytes().end()};
}

ClientKey::ClientKey(std::string_view scheme, const Id& key_id, std::uint32_t client, std::uint64_t round,
                     const Seed& secret)
    : scheme_(scheme), key_id_(key_id), client_(client), round_(round), secret_(secret) {}

ClientKey ClientKey::of_session(std::string_view scheme, const Seed& long_term_secret, const Id& key_id,
                                std::uint32_t client) {
  return {scheme, key_id, client, 0,
          derive(long_term_secret, Input(scheme, "session").put(key_id).put(client))};
}

void ClientKey::advance_to(std::uint64_t round) {
  if (round < round_) {
    throw Error(ErrorCode::kPolicy, "round " + std::to_string(round) +
                                        " is over: the client's key went on to round " +
                                        std::to_string(round_) + " and that of earlier ones is wiped");
  }
  check_not_far_ahead(round_, round);
  for (; round_ < round; ++round_) secret_ = ratchet(scheme_, secret_);
}

std::vector<ClientKey> keys_of(std::string_view scheme, const Id& key_id,
                               std::span<const std::uint64_t> clients, std::span<const std::uint64_t> rounds,
                               std::span<const std::uint8_t> secrets) {
  check_secrets(clients.size(), secrets);
  check_secrets(rounds.size(), secrets);
  std::vector<ClientKey> keys;
  keys.reserve(clients.size());
  for (std::size_t i = 0; i < clients.size(); ++i) {
    if (clients[i] > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorCode::kParameter, "a client's number has at most 32 bits");
    }
    keys.emplace_back(scheme, key_id, static_cast<std::uint32_t>(clients[i]), rounds[i],
                      secret_at(secrets, i));
  }
  return keys;
}

void advance_all(std::string_view scheme, std::span<std::uint64_t> rounds, std::span<std::uint8_t> secrets,
                 std::uint64_t round) {
  check_secrets(rounds.size(), secrets);
  for (const std::uint64_t stands : rounds) check_not_far_ahead(stands, round);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (rounds[i] >= round) continue;
    Seed secret = secret_at(secrets, i);
    for (; rounds[i] < round; ++rounds[i]) secret = ratchet(scheme, secret);
    std::ranges::copy(secret.bytes, secrets.begin() + static_cast<std::ptrdiff_t>(i * kSeedBytes));
  }
}

Seed frame_seed(const ClientKey& key, const SumContext& context, const Id& frame_id) {
  const Input input = Input(context.scheme, "frame").put(context.encode()).put(key.client()).put(frame_id);
  return derive(key.secret(), input);
}

Digest sum_digest(const SumContext& context, std::span<const Participant> participants) {
  Input input(context.scheme, "sum");
  input.put(context.encode()).put(static_cast<std::uint64_t>(participants.size()));
  for (const Participant& one : participants) input.put(one.client).put(one.frame_id);
  return long_digest(input.bytes());
}

}  // namespace shieldfl::enrolled
