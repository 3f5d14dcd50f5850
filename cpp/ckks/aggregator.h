// Sums batches as they arrive, in the memory of one. Holds the public key alone. Several threads may add at
// once; they take turns.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ckks/ciphertext.h"
#include "ckks/keys.h"

namespace shieldfl::ckks {

class Aggregator {
 public:
  // `round`: the round whose batches are accepted; by default the first batch decides.
  Aggregator(std::shared_ptr<const PublicKey> key, std::optional<std::uint64_t> round, std::size_t threads);

  // Adds a batch. Throws, and changes nothing, Error(kWireFormat) for bytes that are no intact batch,
  // Error(kParameter) for other parameters or another selection of positions, Error(kKeyMismatch) for another
  // key, Error(kPolicy) for another round, Error(kDuplicateFrame) for a batch that is in the sum already,
  // Error(kCapacity) past max_clients.
  void add(std::span<const std::uint8_t> frame);
  // The same for a batch that was parsed before.
  void add(const CiphertextView& batch);

  // The frame of the sum so far. Throws Error(kParameter) before the first batch.
  [[nodiscard]] std::vector<std::uint8_t> total() const;

  [[nodiscard]] std::size_t clients() const;
  [[nodiscard]] std::optional<std::uint64_t> round() const;

 private:
  void check(const CiphertextView& batch) const;

  mutable std::mutex mutex_;  // guards what a batch changes
  std::shared_ptr<const PublicKey> key_;
  std::size_t threads_;
  std::optional<std::uint64_t> round_;
  std::optional<Layout> layout_;
  std::set<Id> frame_ids_;
  std::vector<std::uint64_t> sums_;  // block after block, residues below their primes
};

}  // namespace shieldfl::ckks
