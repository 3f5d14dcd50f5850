// Sums batches, and totals of other aggregators, as they arrive, in the memory of one accumulator. Holds the
// public key alone. Several threads may add at once; they take turns.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ckks/ciphertext.h"
#include "ckks/keys.h"
#include "packed/packed_sums.h"
#include "scheme/round_sum.h"

namespace shieldfl::ckks {

class Aggregator final : public scheme::RoundSum {
 public:
  Aggregator(std::shared_ptr<const PublicKey> key, const scheme::Expected& expected, std::size_t threads);

  // Adds a batch in one pass that checks as it adds. The bytes may not change meanwhile. Throws, and changes
  // nothing, Error(kWireFormat) for bytes that are no intact batch, Error(kParameter) for other parameters or
  // another selection of positions, Error(kKeyMismatch) for another key, Error(kPolicy) for another round,
  // Error(kDuplicateFrame) for a batch that is in the sum already, Error(kCapacity) past max_clients.
  void add(std::span<const std::uint8_t> frame);
  // The same for a batch that was parsed, and so checked, before.
  void add(const CiphertextView& batch);

  // The same for the total of another aggregator, which stands for all the clients that it names: take it
  // from aggregators alone, never from a client. kDuplicateFrame if any of its batches is in the sum.
  void add_total(std::span<const std::uint8_t> frame);
  void add_total(const CiphertextView& total);

 private:
  enum class Checksum : std::uint8_t { kCheck, kKnown };

  void add(const CiphertextView& frame, FrameKind expected, Checksum checksum);
  [[nodiscard]] std::size_t total_bytes() const override;
  void write_total(std::span<std::uint8_t> frame) const override;

  std::shared_ptr<const PublicKey> key_;
  packed::PackedSums sums_;
};

}  // namespace shieldfl::ckks
