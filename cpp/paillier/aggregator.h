// Sums batches, and totals of other aggregators, as they arrive, in the memory of one accumulator. Holds the
// public key alone. Several threads may add at once; they take turns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "paillier/ciphertext.h"
#include "paillier/ciphertext_sums.h"
#include "paillier/keys.h"
#include "paillier/union_order.h"
#include "scheme/round_sum.h"

namespace shieldfl::paillier {

// What a client sent beside its batch in the clear, for positions that other clients of its group encrypted:
// one value for each field of the layout (in the order of the union), zero where it encrypted. Quantised
// here.
template <typename T>
using ClearFields = std::span<const T>;

class Aggregator final : public scheme::RoundSum {
 public:
  // `round`: the round whose batches are accepted; by default the first batch decides. `order`: of the union
  // that batches are packed in, without encrypted weights; others are refused then. Without it, batches that
  // leave ciphertexts out are refused: their few bytes may state a sum of any size, and only whoever made the
  // order knows which is right.
  Aggregator(std::shared_ptr<const PublicKey> key, std::optional<std::uint64_t> round, std::size_t threads,
             const UnionOrder* order = nullptr);

  // Adds a batch, `weight` times. The bytes may not change meanwhile. Throws, and changes nothing, as
  // RoundSum::check does; Error(kWireFormat) for bytes that are no intact batch or residues that are
  // none; Error(kParameter) for ciphertexts left out where no order is expected, and for a weight that is
  // zero or above max_weight, or other than 1 for a batch that carries an encrypted one.
  void add(std::span<const std::uint8_t> frame, std::uint32_t weight = 1);
  void add(const CiphertextView& batch, std::uint32_t weight = 1);
  // The same together with what the client sent in the clear: (ciphertext + plaintext) * weight. Throws
  // Error(kRange) for values out of range, Error(kParameter) for another number of them than the layout's and
  // for a batch with an encrypted weight, Error(kCapacity) when fields could overflow if the client had,
  // against the rule, also encrypted its largest values there.
  template <typename T>
  void add_mixed(std::span<const std::uint8_t> frame, ClearFields<T> clear, std::uint32_t weight);
  template <typename T>
  void add_mixed(const CiphertextView& batch, ClearFields<T> clear, std::uint32_t weight);

  // The total of another aggregator, which stands for all the clients that it names: take it from aggregators
  // alone, never from a client.
  void add_total(std::span<const std::uint8_t> frame);
  void add_total(const CiphertextView& total);

 private:
  // What is left to do once a frame was checked.
  using AddToSums = std::function<void(CiphertextSums& sums)>;

  void check_left_out(const CiphertextView& frame) const;
  void check_weight(const CiphertextView& batch, std::uint32_t weight) const;
  // `largest`: what a field of this frame may grow the sum by, in magnitude.
  void add(const CiphertextView& frame, FrameKind expected, std::uint64_t total_weight, std::uint64_t largest,
           const AddToSums& add_to_sums);
  void check_sums() const;
  [[nodiscard]] std::size_t total_bytes() const override;
  void write_total(std::span<std::uint8_t> frame) const override;

  std::shared_ptr<const PublicKey> key_;
  std::size_t threads_;  // as requested
  std::uint64_t total_weight_ = 0;
  std::uint64_t field_bound_ = 0;  // no field of the sum is larger in magnitude
  bool holds_clear_ = false;       // values that were not zero came in the clear
  CiphertextSums sums_;
  // Memory ran out while something was being added: there is no way back. Everything that is called then
  // throws Error(kInternal).
  bool sums_lost_ = false;
};

}  // namespace shieldfl::paillier
