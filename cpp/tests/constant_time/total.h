// A total that opens under either of two secret keys, to sums of its own under each: what an observer of the
// authority knows is the same for both.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ckks/ciphertext.h"
#include "ckks/keys.h"

namespace shieldfl::tests {

class AmbiguousTotal {
 public:
  // Exact packing.
  explicit AmbiguousTotal(ckks::ParametersPointer parameters);

  [[nodiscard]] const ckks::CiphertextView& view() const { return *view_; }
  // s in NTT form, marked as secret, of variant 0 or 1.
  [[nodiscard]] SecretVector<std::uint64_t> secret_rows(int variant) const;
  // A key of these rows, with a secret seed.
  [[nodiscard]] std::shared_ptr<const ckks::SecretKey> secret_key(int variant) const;

 private:
  using Row = std::vector<std::uint64_t>;

  [[nodiscard]] Row transformed_secret(int variant, std::size_t p) const;
  // The message of a variant's sums with a variant's noise.
  [[nodiscard]] Row noisy_message(int variant, std::size_t p) const;
  void write_frame(std::vector<std::uint64_t>& rows);

  ckks::ParametersPointer parameters_;
  std::vector<std::uint8_t> frame_;
  std::optional<ckks::CiphertextView> view_;  // set by the constructor
};

}  // namespace shieldfl::tests
