// What the emulated program of emulated.cpp and the emulator's plugin say to each other.
#pragma once

#include <cstdint>

namespace shieldfl::tests {

// System calls that no kernel has: from the first on the program is followed, and the second ends that and
// has a Followed written to the descriptor that it names.
inline constexpr long kFollow = 5000;
inline constexpr long kTell = 5001;

struct Followed {
  std::uint64_t steps;
  std::uint64_t digest;  // of all that ran and of all addresses, in their order

  bool operator==(const Followed&) const = default;
};

}  // namespace shieldfl::tests
