#include "scheme/round_sum.h"

#include <string>

#include "common/error.h"

namespace shieldfl::scheme {

bool Expected::admits(const Layout& layout) const {
  return (!positions || (positions->mask_id == layout.mask_id && positions->count == layout.value_count)) &&
         (!weighted || *weighted == layout.weighted);
}

RoundSum::RoundSum(const Id& parameter_id, const Id& key_id, std::uint32_t max_clients,
                   const Expected& expected)
    : parameter_id_(parameter_id), key_id_(key_id), max_clients_(max_clients), expected_(expected) {}

void RoundSum::total(const std::function<std::span<std::uint8_t>(std::size_t)>& allocate) const {
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::size_t bytes = total_bytes();
    // Not under the lock: the allocator may wait for a lock that a thread which adds holds.
    lock.unlock();
    const auto frame = allocate(bytes);
    lock.lock();
    if (bytes == total_bytes()) return write_total(frame);
  }
}

std::size_t RoundSum::clients() const {
  const std::lock_guard lock(mutex_);
  return frame_ids_.size();
}

std::optional<std::uint64_t> RoundSum::round() const {
  const std::lock_guard lock(mutex_);
  return summed_round();
}

std::optional<std::uint64_t> RoundSum::summed_round() const {
  return layout_ ? layout_->round : expected_.round;
}

void RoundSum::check(const Layout& layout, std::span<const Id> frame_ids) const {
  if (layout.parameter_id != parameter_id_) {
    throw Error(ErrorCode::kParameter,
                "the batch was made with other parameters: all clients must use those of the public key");
  }
  if (layout.key_id != key_id_) {
    throw Error(ErrorCode::kKeyMismatch,
                "the batch was encrypted under another key: send the client the current public key");
  }
  const std::optional<std::uint64_t> own = summed_round();
  if (own && layout.round != *own) {
    throw Error(ErrorCode::kPolicy, "the batch is of round " + std::to_string(layout.round) +
                                        ", the sum of round " + std::to_string(*own) + ": it was not added");
  }
  for (const Id& id : frame_ids) {
    if (frame_ids_.contains(id)) {
      throw Error(ErrorCode::kDuplicateFrame, "this batch is in the sum already: it was not added again");
    }
  }
  if (layout_ ? layout != *layout_ : !expected_.admits(layout)) {
    throw Error(
        ErrorCode::kParameter,
        "the batch holds other positions, or in another order, or another number of values, or differs in "
        "having a weight: the clients of a round must agree on mask and weighting");
  }
  if (frame_ids_.size() + frame_ids.size() > max_clients_) {
    throw Error(ErrorCode::kCapacity, "the sum holds " + std::to_string(frame_ids_.size()) +
                                          " clients, and the parameters have room for no more than " +
                                          std::to_string(max_clients_) + ": raise max_clients");
  }
}

void RoundSum::note_added(const Layout& layout, std::set<Id>&& frame_ids) noexcept {
  frame_ids_.merge(frame_ids);
  layout_ = layout;
}

const Layout& RoundSum::summed_layout() const {
  if (!layout_) {
    throw Error(ErrorCode::kParameter, "no batch has been added, so there is no total: add at least one");
  }
  return *layout_;
}

}  // namespace shieldfl::scheme
