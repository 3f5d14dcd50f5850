#include "common/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace shieldfl {

void prefer_huge_pages(void* memory, std::size_t bytes) noexcept {
  constexpr std::uintptr_t kHugePage = std::uintptr_t{1} << 21;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t last = (begin + bytes) / kHugePage * kHugePage;
  if (first >= last) return;
  (void)::madvise(static_cast<char*>(memory) + (first - begin), last - first, MADV_HUGEPAGE);
}

}  // namespace shieldfl
