// What an authority answers: the sum of the one-time secrets of those who are in a total. It opens that total
// and nothing else, with those of the session's other authorities, if there are some.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/secure_memory.h"
#include "enrolled/sum_key_head.h"
#include "kahe/ciphertext.h"
#include "scheme/opened_sums.h"

namespace shieldfl::kahe {

using scheme::OpenedSums;

// Wiped on destruction.
class SumKey {
 public:
  // Sums the secrets that `keys` give for the request: one for each participant, in their order, each at the
  // request's round. Throws Error(kParameter) or Error(kKeyMismatch) for a request of another session, or
  // keys that are not the participants'. The result does not depend on `threads`. Constant-time in the keys.
  static SumKey of_request(const PublicKey& key, const SumRequest& request, std::span<const ClientKey> keys,
                           std::size_t threads);

  // Its unit is the degree, its numbers are coefficients.
  [[nodiscard]] const enrolled::SumKeyHead& head() const { return head_; }
  // S_v: degree coefficients for each secret polynomial, of kMaxSample times the clients at most in
  // magnitude.
  [[nodiscard]] std::span<const std::int32_t> coefficients() const { return coefficients_; }

  [[nodiscard]] SecretVector<std::uint8_t> to_frame() const;
  // Throws Error(kWireFormat).
  static SumKey from_frame(std::span<const std::uint8_t> frame);
  // What a frame states before its numbers, which are secret, are as many as that says, and are not looked
  // at. Throws Error(kWireFormat).
  static enrolled::SumKeyHead head_of(std::span<const std::uint8_t> frame);

 private:
  enrolled::SumKeyHead head_;
  SecretVector<std::int32_t> coefficients_;
};

// The sums, each one integer times 2^-fraction_bits, which a double represents. `total_digest`: of the
// total's frame, as the caller has worked it out. `sum_keys`: of each authority of the session. Throws
// Error(kParameter) or Error(kKeyMismatch) for a total of another session, or a key for another total;
// Error(kParameter) for no keys or too many; Error(kWireFormat) for what does not open to sums of values in
// range, as where the list of participants is not that of the ciphertexts, or an authority's key is missing.
// Constant-time in the keys.
OpenedSums open(const PublicKey& key, const CiphertextView& total, const Digest& total_digest,
                std::span<const SumKey> sum_keys, std::size_t threads);
// The same into `fields`, the layout's field_count() of them, which need not be set before: the sums, and
// where there are weights, one more. Returns the sum of weights. Where it throws, nothing opened is left
// there.
std::optional<double> open_into(std::span<double> fields, const PublicKey& key, const CiphertextView& total,
                                const Digest& total_digest, std::span<const SumKey> sum_keys,
                                std::size_t threads);

}  // namespace shieldfl::kahe
