#include "enrolled/context.h"

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
  if (round - round_ > kMostRoundsAhead) {
    throw Error(ErrorCode::kPolicy, "round " + std::to_string(round) + " is more than " +
                                        std::to_string(kMostRoundsAhead) + " rounds after round " +
                                        std::to_string(round_) +
                                        ", where the client's key is: begin a new session");
  }
  for (; round_ < round; ++round_) secret_ = derive(secret_, Input(scheme_, "ratchet"));
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
