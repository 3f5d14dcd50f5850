// Opens totals. Only the key authority has one: it holds the secret key.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ckks/ciphertext.h"
#include "ckks/keys.h"
#include "scheme/opened_sums.h"

namespace shieldfl::ckks {

using scheme::OpenedSums;

class Decryptor {
 public:
  explicit Decryptor(std::shared_ptr<const SecretKey> key);

  // The sums. Exact packing: the integer sums times 2^-fraction_bits, every one representable in a double.
  // Slots: flooded with Gaussian noise that depends on the key and the ciphertexts alone, so that opening the
  // same total again gives the same values. Throws Error(kParameter) or Error(kKeyMismatch) for a total under
  // other parameters or another key, Error(kWireFormat) for one that is not a sum of valid encryptions.
  [[nodiscard]] OpenedSums open(const CiphertextView& total, std::size_t threads) const;

  // Slots without flooding. Publishing the result reveals the key's noise and with it the key: tests alone.
  [[nodiscard]] OpenedSums insecure_open_unflooded(const CiphertextView& total, std::size_t threads) const;

  // From the residues of a ciphertext to those of c0 + c1 s, a row of coefficients for each prime, in the
  // first half; what is left in the second is of no meaning, but secret. Constant-time in the key.
  void decrypt(std::span<std::uint64_t> ciphertext) const;

 private:
  [[nodiscard]] OpenedSums open_all(const CiphertextView& total, std::size_t threads, bool flooded) const;
  void check(const CiphertextView& total) const;

  std::shared_ptr<const SecretKey> key_;
};

}  // namespace shieldfl::ckks
