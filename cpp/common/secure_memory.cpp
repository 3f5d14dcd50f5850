#include "common/secure_memory.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace shieldfl {

void secure_wipe(void* data, std::size_t size) noexcept {
  if (size == 0) return;
  std::memset(data, 0, size);
  // The barrier makes the zeros observable, so dead-store elimination has to keep the memset.
  __asm__ __volatile__("" : : "r"(data) : "memory");
}

[[gnu::noinline]] void secure_wipe_stack() noexcept {
  constexpr std::size_t kDeepest = 4096;
  std::array<std::uint8_t, kDeepest> below;
  secure_wipe(below.data(), below.size());
}

}  // namespace shieldfl
