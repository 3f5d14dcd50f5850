// Marks for the check that no branch and no address depends on a secret: compiled with SHIELDFL_TAINT_CHECK
// and run under valgrind, which then reports every such use. They do nothing otherwise.
#pragma once

#include <cstddef>

#ifdef SHIELDFL_TAINT_CHECK
#include <valgrind/memcheck.h>
#endif

namespace shieldfl {

// The bytes are secret from here on, and so is what is computed from them.
inline void mark_secret([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t size) noexcept {
#ifdef SHIELDFL_TAINT_CHECK
  (void)VALGRIND_MAKE_MEM_UNDEFINED(data, size);
#endif
}

// The bytes may be known to everybody, though they were computed from secrets: the caller says why.
inline void declassify([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t size) noexcept {
#ifdef SHIELDFL_TAINT_CHECK
  (void)VALGRIND_MAKE_MEM_DEFINED(data, size);
#endif
}

}  // namespace shieldfl
