// Memory for secrets: wiped before it is given back.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace shieldfl {

// Overwrites `size` bytes with zeros in a way that the compiler may not remove.
void secure_wipe(void* data, std::size_t size) noexcept;

// Wipes on deallocation, which covers destruction, reallocation and exceptions.
template <typename T>
struct WipingAllocator {
  using value_type = T;

  WipingAllocator() noexcept = default;
  template <typename U>
  WipingAllocator(const WipingAllocator<U>&) noexcept {}  // NOLINT: allocators convert implicitly

  T* allocate(std::size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* data, std::size_t count) noexcept {
    secure_wipe(data, count * sizeof(T));
    std::allocator<T>().deallocate(data, count);
  }
  bool operator==(const WipingAllocator&) const noexcept { return true; }
};

template <typename T>
using SecretVector = std::vector<T, WipingAllocator<T>>;

}  // namespace shieldfl
