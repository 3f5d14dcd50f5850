#include "common/verify.h"

#include <cstdio>
#include <cstdlib>

namespace shieldfl {

void contract_violated(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: contract violated: %s\n", file, line, condition);
  std::abort();
}

bool all_below(const std::uint64_t* values, std::size_t count, std::uint64_t bound) {
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] >= bound) return false;
  }
  return true;
}

bool all_within(const std::int64_t* values, std::size_t count, std::int64_t most) {
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] > most || values[i] < -most) return false;
  }
  return true;
}

bool is_below(const std::uint64_t* left, const std::uint64_t* right, std::size_t words) {
  for (std::size_t i = words; i-- > 0;) {
    if (left[i] != right[i]) return left[i] < right[i];
  }
  return false;
}

bool is_aligned(const void* memory, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0;
}

bool overlap(const void* left, std::size_t left_bytes, const void* right, std::size_t right_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(left);
  const auto second = reinterpret_cast<std::uintptr_t>(right);
  return first < second + right_bytes && second < first + left_bytes;
}

}  // namespace shieldfl
