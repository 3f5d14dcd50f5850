// Storage for words that are written before they are read: growing it leaves them as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace shieldfl::mask {

// Where a word vector begins: on a cache line. The system's allocator begins large blocks 16 bytes into one,
// so that every load of a whole line would take two, and two places where the lines of many masks displace
// each other.
inline constexpr std::size_t kWordAlignment = 64;

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

  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{kWordAlignment}));
  }
  void deallocate(T* place, std::size_t count) noexcept {
    ::operator delete(place, count * sizeof(T), std::align_val_t{kWordAlignment});
  }

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
