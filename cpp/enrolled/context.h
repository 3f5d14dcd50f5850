// What a frame's one-time secret is bound to: whatever a lying aggregator would relabel opens to noise.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/digest.h"
#include "common/random.h"
#include "common/secure_memory.h"
#include "common/wire.h"
#include "scheme/layout.h"

namespace shieldfl::enrolled {

using scheme::Layout;

// A client's frame in a sum.
struct Participant {
  std::uint32_t client = 0;  // its number in the session
  Id frame_id{};

  auto operator<=>(const Participant&) const = default;
};

// What all frames of a sum have in common.
struct SumContext {
  std::string_view scheme{};  // its name, a literal: keys of two schemes have nothing in common
  Digest manifest{};          // of the session, as the authority signed it
  Id authority{};
  std::uint32_t epoch = 0;
  Id purpose{};            // the digest of its name: what the values are
  std::uint32_t part = 0;  // of the model, where it is sent in parts
  Layout layout{};         // of it the parameter id, round, mask, count and weighting

  // Of a fixed length; the key's id, which stands for manifest, authority and epoch, is left out, and so is
  // the scheme.
  [[nodiscard]] std::vector<std::uint8_t> encode() const;
};

// k_i of one round as the client and one authority have it. Where a session has several authorities, a client
// shares a key with each.
//
// Keys ratchet by the number of the round: k_(r + 1) = KDF(k_r), and k_r is wiped. So whoever steals a key
// reads nothing of rounds before.
class ClientKey {
 public:
  static constexpr std::uint64_t kMostRoundsAhead = std::uint64_t{1} << 16;

  // The key of `round` in the session whose public key has the id `key_id`. `scheme`: a literal.
  ClientKey(std::string_view scheme, const Id& key_id, std::uint32_t client, std::uint64_t round,
            const Seed& secret);
  // The key of round 0, from the long-term secret that client and authority share.
  static ClientKey of_session(std::string_view scheme, const Seed& long_term_secret, const Id& key_id,
                              std::uint32_t client);

  [[nodiscard]] const Id& key_id() const { return key_id_; }
  [[nodiscard]] std::uint32_t client() const { return client_; }
  [[nodiscard]] std::uint64_t round() const { return round_; }
  [[nodiscard]] const Seed& secret() const { return secret_; }

  // Goes on to a round. Throws Error(kPolicy), and stays, for an earlier one or one more than
  // kMostRoundsAhead later.
  void advance_to(std::uint64_t round);

 private:
  std::string_view scheme_;
  Id key_id_;
  std::uint32_t client_;
  std::uint64_t round_;
  Seed secret_;
};

// The keys of many clients, each at its round; a secret has 32 bytes. Throws Error(kParameter) unless there
// is a round and a secret for each client, and for a client's number of more than 32 bits.
std::vector<ClientKey> keys_of(std::string_view scheme, const Id& key_id,
                               std::span<const std::uint64_t> clients, std::span<const std::uint64_t> rounds,
                               std::span<const std::uint8_t> secrets);

// Goes on to a round with the secrets of many keys of a scheme, 32 bytes each, which stand at `rounds`; those
// that are past it stay. Throws Error(kParameter) unless there is a secret for each round, Error(kPolicy),
// before anything changes, as ClientKey::advance_to() does.
void advance_all(std::string_view scheme, std::span<std::uint64_t> rounds, std::span<std::uint8_t> secrets,
                 std::uint64_t round);

// The seed of a frame's one-time secret. `key`: at the context's round.
Seed frame_seed(const ClientKey& key, const SumContext& context, const Id& frame_id);

// The digest of a context and the list of those who take part in its sum.
Digest sum_digest(const SumContext& context, std::span<const Participant> participants);

}  // namespace shieldfl::enrolled
