// Sums batches, and totals of other aggregators, as they arrive, in the memory of one accumulator, and keeps
// the list of who is in the sum. Several threads may add at once; they take turns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kahe/ciphertext.h"
#include "kahe/public_key.h"
#include "rlwe/digit_sums.h"
#include "scheme/round_sum.h"

namespace shieldfl::kahe {

class Aggregator final : public scheme::RoundSum {
 public:
  // Of batches for this purpose and part of a model.
  Aggregator(std::shared_ptr<const PublicKey> key, const Id& purpose, std::uint32_t part,
             const scheme::Expected& expected, std::size_t threads);

  // Adds a batch in one pass that checks as it adds. The bytes may not change meanwhile. Throws, and changes
  // nothing, Error(kWireFormat) for bytes that are no intact batch, Error(kParameter) for other parameters or
  // another selection of positions, Error(kKeyMismatch) for another session, Error(kPolicy) for another
  // round, purpose or part, Error(kDuplicateFrame) for a client that is in the sum already, Error(kCapacity)
  // past max_clients.
  void add(std::span<const std::uint8_t> frame);
  // The same for a batch that was parsed, and so checked, before.
  void add(const CiphertextView& batch);

  // The same for the total of another aggregator, which stands for all the clients that it names: take it
  // from aggregators alone, never from a client. kDuplicateFrame if any of its clients is in the sum.
  void add_total(std::span<const std::uint8_t> frame);
  void add_total(const CiphertextView& total);

 private:
  enum class Checksum : std::uint8_t { kCheck, kKnown };

  void add(const CiphertextView& frame, FrameKind expected, Checksum checksum);
  void check_frame(const CiphertextView& frame, std::span<const Id> frame_ids) const;
  [[nodiscard]] FrameHead head() const;
  [[nodiscard]] std::size_t total_bytes() const override;
  void write_total(std::span<std::uint8_t> frame) const override;

  std::shared_ptr<const PublicKey> key_;
  Id purpose_;
  std::uint32_t part_;
  std::map<std::uint32_t, Id> participants_;  // client to frame id
  rlwe::DigitSums sums_;
};

}  // namespace shieldfl::kahe
