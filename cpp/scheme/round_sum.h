// What is alike in the aggregators of all schemes: what is in the sum of a round, what may still be added to
// it, and how its total is handed out.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "scheme/layout.h"

namespace shieldfl::scheme {

// What batches must have in common to be summed; what is left open, the first of them decides.
struct Expected {
  struct Positions {
    Id mask_id{};
    std::uint64_t count = 0;
  };

  std::optional<std::uint64_t> round = {};
  std::optional<Positions> positions = {};
  std::optional<bool> weighted = {};

  [[nodiscard]] bool admits(const Layout& layout) const;
};

class RoundSum {
 public:
  // Writes the frame of the sum so far to the memory that `allocate` gives for a number of bytes; it is
  // called again should the sum have grown meanwhile. Throws Error(kParameter) before the first batch.
  void total(const std::function<std::span<std::uint8_t>(std::size_t bytes)>& allocate) const;

  [[nodiscard]] std::size_t clients() const;
  [[nodiscard]] std::optional<std::uint64_t> round() const;

 protected:
  // `parameter_id`, `key_id`: of the public key.
  RoundSum(const Id& parameter_id, const Id& key_id, std::uint32_t max_clients, const Expected& expected);
  ~RoundSum() = default;

  // All below are called with mutex_ held.

  // Throws unless what these batches hold may be added: Error(kParameter) for other parameters or another
  // selection of positions, Error(kKeyMismatch) for another key, Error(kPolicy) for another round,
  // Error(kDuplicateFrame) for a batch that is in the sum already, Error(kCapacity) past max_clients.
  void check(const Layout& layout, std::span<const Id> frame_ids) const;
  // Once they are in the sum. Cannot fail: the set's nodes are moved.
  void note_added(const Layout& layout, std::set<Id>&& frame_ids) noexcept;

  [[nodiscard]] bool empty() const { return !layout_; }
  // Of all batches, or that they must be of, where it is known.
  [[nodiscard]] std::optional<std::uint64_t> summed_round() const;
  // Whether it was said beforehand which positions batches must have.
  [[nodiscard]] bool expects_positions() const { return expected_.positions.has_value(); }
  // Of all batches; throws Error(kParameter) before the first.
  [[nodiscard]] const Layout& summed_layout() const;
  [[nodiscard]] std::size_t frame_count() const { return frame_ids_.size(); }
  // In ascending order.
  [[nodiscard]] std::vector<Id> frame_ids() const { return {frame_ids_.begin(), frame_ids_.end()}; }

  [[nodiscard]] virtual std::size_t total_bytes() const = 0;
  virtual void write_total(std::span<std::uint8_t> frame) const = 0;

  mutable std::mutex mutex_;  // guards what a batch changes

 private:
  Id parameter_id_;
  Id key_id_;
  std::uint32_t max_clients_;
  const Expected expected_;
  std::optional<Layout> layout_;
  std::set<Id> frame_ids_;
};

}  // namespace shieldfl::scheme
