#include "enrolled/encryptor.h"

#include "enrolled/sum_key_head.h"

namespace shieldfl::enrolled {

void check_client_keys(std::span<const ClientKey> keys, const Id& key_id) {
  if (keys.empty()) throw Error(ErrorCode::kParameter, "encryption takes a client's key");
  if (keys.size() > kMaxAuthorities) {
    throw Error(ErrorCode::kParameter, "a session has three authorities at most");
  }
  for (const ClientKey& key : keys) {
    if (key.key_id() != key_id) {
      throw Error(ErrorCode::kKeyMismatch, "the client's key is of another session than the public key");
    }
    if (key.client() != keys.front().client() || key.round() != keys.front().round()) {
      throw Error(ErrorCode::kKeyMismatch,
                  "a client's keys for several authorities are of one client, and at one round");
    }
  }
}

}  // namespace shieldfl::enrolled
