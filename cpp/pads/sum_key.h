// What an authority answers: the sum of the pads of those who are in a total. It opens that total and nothing
// else, with those of the session's other authorities, if there are some.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "common/secure_memory.h"
#include "enrolled/sum_key_head.h"
#include "pads/ciphertext.h"
#include "scheme/opened_sums.h"

namespace shieldfl::pads {

using scheme::OpenedSums;

// Wiped on destruction.
class SumKey {
 public:
  // Sums the pads that `keys` give for the request: one for each participant, in their order, each at the
  // request's round. Throws Error(kParameter) or Error(kKeyMismatch) for a request of another session, or
  // keys that are not the participants'. The result does not depend on `threads`. Constant-time in the keys.
  static SumKey of_request(const PublicKey& key, const SumRequest& request, std::span<const ClientKey> keys,
                           std::size_t threads);

  // Its unit is the bits of a word, its numbers are words.
  [[nodiscard]] const enrolled::SumKeyHead& head() const { return head_; }
  // Block after block as in the total.
  [[nodiscard]] std::span<const std::uint8_t> packed() const { return packed_; }

  [[nodiscard]] SecretVector<std::uint8_t> to_frame() const;
  // Throws Error(kWireFormat).
  static SumKey from_frame(std::span<const std::uint8_t> frame);
  // What a frame states before its numbers, which are secret, are as many as that says, and are not looked
  // at. Throws Error(kWireFormat).
  static enrolled::SumKeyHead head_of(std::span<const std::uint8_t> frame);

 private:
  enrolled::SumKeyHead head_;
  SecretVector<std::uint8_t> packed_;
};

// The sums, each one integer times 2^-fraction_bits, which a double represents. Arguments and errors are
// those of kahe::open and kahe::open_into. Constant-time in the keys.
OpenedSums open(const PublicKey& key, const CiphertextView& total, const Digest& total_digest,
                std::span<const SumKey> sum_keys, std::size_t threads);
std::optional<double> open_into(std::span<double> fields, const PublicKey& key, const CiphertextView& total,
                                const Digest& total_digest, std::span<const SumKey> sum_keys,
                                std::size_t threads);

}  // namespace shieldfl::pads
