// What the authority answers: the sum of the one-time secrets of those who are in a total. It opens that
// total and nothing else, and whoever computes it sees neither the total nor what is in it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/secure_memory.h"
#include "kahe/ciphertext.h"
#include "kahe/context.h"
#include "kahe/public_key.h"
#include "scheme/opened_sums.h"

namespace shieldfl::kahe {

using scheme::OpenedSums;

// What the aggregator asks for: the head of a total, and a digest of its frame that binds the answer to it.
struct SumRequest {
  FrameHead head;
  Digest total_digest{};

  static SumRequest of_total(const CiphertextView& total, const Digest& total_digest);
  [[nodiscard]] std::vector<std::uint8_t> to_frame() const;
  // Throws Error(kWireFormat).
  static SumRequest from_frame(std::span<const std::uint8_t> frame);
};

// Wiped on destruction.
class SumKey {
 public:
  // Sums the secrets that `keys` give for the request: one for each participant, in their order, each at the
  // request's round. Throws Error(kParameter) or Error(kKeyMismatch) for a request of another session, or
  // keys that are not the participants'. The result does not depend on `threads`. Constant-time in the keys.
  static SumKey of_request(const PublicKey& key, const SumRequest& request, std::span<const ClientKey> keys,
                           std::size_t threads);

  [[nodiscard]] const Id& parameter_id() const { return parameter_id_; }
  [[nodiscard]] const Id& key_id() const { return key_id_; }
  [[nodiscard]] std::uint32_t clients() const { return clients_; }
  [[nodiscard]] std::uint32_t degree() const { return degree_; }
  [[nodiscard]] const Digest& sum() const { return sum_; }                    // sum_digest() of the request
  [[nodiscard]] const Digest& total_digest() const { return total_digest_; }  // as the request stated it
  // S_v: degree coefficients for each secret polynomial, of kMaxSample times the clients at most in
  // magnitude.
  [[nodiscard]] std::span<const std::int32_t> coefficients() const { return coefficients_; }

  [[nodiscard]] SecretVector<std::uint8_t> to_frame() const;
  // Throws Error(kWireFormat).
  static SumKey from_frame(std::span<const std::uint8_t> frame);

 private:
  Id parameter_id_{};
  Id key_id_{};
  std::uint32_t clients_ = 0;
  std::uint32_t degree_ = 0;
  Digest sum_{};
  Digest total_digest_{};
  SecretVector<std::int32_t> coefficients_;
};

// The sums, each one integer times 2^-fraction_bits, which a double represents. `total_digest`: of the
// total's frame, as the caller has worked it out. Throws Error(kParameter) or Error(kKeyMismatch) for a total
// of another session, or a key for another total; Error(kWireFormat) for what does not open to sums of values
// in range, as where the list of participants is not that of the ciphertexts. Constant-time in the key.
OpenedSums open(const PublicKey& key, const CiphertextView& total, const Digest& total_digest,
                const SumKey& sum_key, std::size_t threads);

}  // namespace shieldfl::kahe
