// Memory for secrets: wiped before it is given back.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace shieldfl {

// Overwrites `size` bytes with zeros in a way that the compiler may not remove.
void secure_wipe(void* data, std::size_t size) noexcept;

// Overwrites the stack below its caller, where functions that the caller has called had their variables: what
// vector registers did not hold, and what code that is not ours leaves there. Of no effect on what is deeper
// than 4 KiB.
void secure_wipe_stack() noexcept;

// Wipes on deallocation, which covers destruction, reallocation and exceptions. Aligned to cache lines, so
// that no vector of a row lies across two of them.
template <typename T>
struct WipingAllocator {
  using value_type = T;

  WipingAllocator() noexcept = default;
  template <typename U>
  WipingAllocator(const WipingAllocator<U>&) noexcept {}  // NOLINT: allocators convert implicitly

  static constexpr std::align_val_t kAlignment{64};

  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* data, std::size_t count) noexcept {
    secure_wipe(data, count * sizeof(T));
    ::operator delete(data, kAlignment);
  }
  bool operator==(const WipingAllocator&) const noexcept { return true; }
};

template <typename T>
using SecretVector = std::vector<T, WipingAllocator<T>>;

}  // namespace shieldfl
