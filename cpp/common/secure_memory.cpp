#include "common/secure_memory.h"

#include <cstring>

namespace shieldfl {

void secure_wipe(void* data, std::size_t size) noexcept {
  if (size == 0) return;
  std::memset(data, 0, size);
  // The barrier makes the zeros observable, so dead-store elimination has to keep the memset.
  __asm__ __volatile__("" : : "r"(data) : "memory");
}

}  // namespace shieldfl
