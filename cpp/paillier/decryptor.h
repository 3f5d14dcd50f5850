// Opens totals. Only the key authority has one: it holds the secret key.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "paillier/ciphertext.h"
#include "paillier/keys.h"
#include "paillier/opening_check.h"
#include "scheme/opened_sums.h"

namespace shieldfl::paillier {

using scheme::OpenedSums;

class Decryptor {
 public:
  // Throws Error(kKeyMismatch) unless the keys are of one pair.
  Decryptor(std::shared_ptr<const PublicKey> public_key, std::shared_ptr<const SecretKey> key);

  // The integer sums times 2^-fraction_bits, every one representable in a double. Throws Error(kPolicy) for a
  // batch, Error(kParameter) or Error(kKeyMismatch) for a total under other parameters or another key,
  // Error(kWireFormat) for one that is not a sum of valid encryptions, Error(kInternal) where the machine
  // computed wrongly, which would give the key away (opening_check.h). `threads`: 0 means all cores.
  [[nodiscard]] OpenedSums open(const CiphertextView& total, std::size_t threads) const;

 private:
  void check(const CiphertextView& total) const;

  std::shared_ptr<const PublicKey> public_key_;
  std::shared_ptr<const SecretKey> key_;
};

// The same with any way to decrypt, which tests make faults in; whose key the total is under is not checked.
OpenedSums open_total(const PublicKey& public_key, const CiphertextView& total, const Decrypt& decrypt,
                      std::size_t threads);

}  // namespace shieldfl::paillier
