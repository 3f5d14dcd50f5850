// Moving values between a dense vector (one per position) and a compact one (one per chosen position).
//
// For float and double. `dense` has mask.size() entries, `compact` mask.count(), in ascending order of
// position; the caller answers for both lengths, and the two may not overlap. `threads`: 0 means
// threads_for(); the result does not depend on it.
#pragma once

#include <cstddef>

#include "mask/bitset.h"

namespace shieldfl::mask {

// compact[r] = dense[position of rank r].
template <typename T>
void gather(const T* dense, const Bitset& mask, T* compact, std::size_t threads = 0);

// dense[position of rank r] = compact[r]; leaves the other positions alone.
template <typename T>
void scatter(const T* compact, const Bitset& mask, T* dense, std::size_t threads = 0);

// dense[position of rank r] += compact[r]; leaves the other positions alone.
template <typename T>
void scatter_add(const T* compact, const Bitset& mask, T* dense, std::size_t threads = 0);

}  // namespace shieldfl::mask
