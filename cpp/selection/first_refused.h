// Finding the value that an input is refused for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <span>

#include "parallel/parallel_for.h"

namespace shieldfl::selection {

// Positions that a thread must have to go through before it is worth its start; whole words of a mask.
inline constexpr std::size_t kGrainPositions = std::size_t{1} << 16;

// The first position whose value `is_valid` does not accept, or values.size().
template <typename T, typename IsValid>
std::size_t first_refused(std::span<const T> values, std::size_t threads, IsValid is_valid) {
  constexpr std::size_t kBlock = 1024;
  std::size_t first = values.size();
  std::mutex mutex;
  parallel_for(values.size(), threads, kGrainPositions, [&](std::size_t begin, std::size_t end) {
    for (std::size_t start = begin; start < end; start += kBlock) {
      const auto block = values.subspan(start, std::min(kBlock, end - start));
      bool all_valid = true;  // without a way out of the loop, so that it runs on vectors
      for (const T value : block) all_valid &= is_valid(value);
      if (all_valid) continue;
      const auto refused = std::ranges::find_if_not(block, is_valid) - block.begin();
      const std::lock_guard lock(mutex);
      first = std::min(first, start + static_cast<std::size_t>(refused));
      return;
    }
  });
  return first;
}

}  // namespace shieldfl::selection
