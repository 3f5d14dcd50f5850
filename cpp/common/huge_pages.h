// Large memory in large pages: a page fault for every 4 KiB can cost more than what is written there.
#pragma once

#include <cstddef>

namespace shieldfl {

// Asks the system to back memory that was not touched yet with huge pages, where whole ones fit into it.
// Advice: nothing depends on whether it is taken.
void prefer_huge_pages(void* memory, std::size_t bytes) noexcept;

}  // namespace shieldfl
