// An identifier that is computed when it is first asked for.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/digest.h"

namespace shieldfl::mask {

// Kept by an immutable object, whose threads may ask at the same time: nobody waits, and the same value may
// be computed more than once. A copy takes over what is there already.
class CachedId {
 public:
  CachedId() = default;
  CachedId(const CachedId& other) noexcept { take(other); }
  CachedId& operator=(const CachedId& other) noexcept {
    if (this != &other) {
      state_.store(State::kEmpty, std::memory_order_relaxed);
      take(other);
    }
    return *this;
  }
  ~CachedId() = default;

  // `compute` returns the identifier: the same one whenever it is called.
  template <typename Compute>
  [[nodiscard]] Id get(Compute compute) const {
    if (state_.load(std::memory_order_acquire) == State::kKept) return id_;
    const Id id = compute();
    auto state = State::kEmpty;
    if (state_.compare_exchange_strong(state, State::kBeingWritten, std::memory_order_relaxed)) {
      id_ = id;
      state_.store(State::kKept, std::memory_order_release);
    }
    return id;
  }

 private:
  enum class State : std::uint8_t { kEmpty, kBeingWritten, kKept };

  void take(const CachedId& other) noexcept {
    if (other.state_.load(std::memory_order_acquire) != State::kKept) return;
    id_ = other.id_;
    state_.store(State::kKept, std::memory_order_release);
  }

  mutable std::atomic<State> state_ = State::kEmpty;
  mutable Id id_{};
};

}  // namespace shieldfl::mask
