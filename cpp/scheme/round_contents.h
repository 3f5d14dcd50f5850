// What is in the sum of a round, and what may still be added to it, whatever the scheme.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "scheme/layout.h"

namespace shieldfl::scheme {

class RoundContents {
 public:
  // `parameter_id`, `key_id`: of the public key. `round`: whose batches are accepted; by default the first
  // decides.
  RoundContents(const Id& parameter_id, const Id& key_id, std::uint32_t max_clients,
                std::optional<std::uint64_t> round);

  // Throws unless what these batches hold may be added: Error(kParameter) for other parameters or another
  // selection of positions, Error(kKeyMismatch) for another key, Error(kPolicy) for another round,
  // Error(kDuplicateFrame) for a batch that is in the sum already, Error(kCapacity) past max_clients.
  void check(const Layout& layout, std::span<const Id> frame_ids) const;
  // Once they are in the sum. Cannot fail: the set's nodes are moved.
  void add(const Layout& layout, std::set<Id>&& frame_ids) noexcept;

  [[nodiscard]] std::size_t clients() const { return frame_ids_.size(); }
  [[nodiscard]] std::optional<std::uint64_t> round() const { return round_; }
  // Of all batches; empty before the first.
  [[nodiscard]] const std::optional<Layout>& layout() const { return layout_; }
  // The same; throws Error(kParameter) before the first.
  [[nodiscard]] const Layout& require_layout() const;
  // In ascending order.
  [[nodiscard]] std::vector<Id> frame_ids() const { return {frame_ids_.begin(), frame_ids_.end()}; }

 private:
  Id parameter_id_;
  Id key_id_;
  std::uint32_t max_clients_;
  std::optional<std::uint64_t> round_;
  std::optional<Layout> layout_;
  std::set<Id> frame_ids_;
};

}  // namespace shieldfl::scheme
