// Storage for words that are written before they are read: growing it leaves them as they are.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace shieldfl::mask {

// Zeroing 64 bits for every word that is overwritten at once would double what is written.
template <typename T>
struct UninitialisedAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = UninitialisedAllocator<U>;
  };

  UninitialisedAllocator() = default;
  template <typename U>
  explicit UninitialisedAllocator(const UninitialisedAllocator<U>& /*other*/) noexcept {}

  template <typename U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* place, Arguments&&... arguments) {
    ::new (static_cast<void*>(place)) U(std::forward<Arguments>(arguments)...);
  }
};

// WordVector(n) has n words of any value; WordVector(n, 0) has zeros.
using WordVector = std::vector<std::uint64_t, UninitialisedAllocator<std::uint64_t>>;

}  // namespace shieldfl::mask
