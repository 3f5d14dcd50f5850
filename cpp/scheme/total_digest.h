// What a total is known by: the digest that the answer which opens it is bound to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/digest.h"

namespace shieldfl::scheme {

// Of each leaf of the tree but the last, which may be shorter.
inline constexpr std::size_t kTotalLeafBytes = 8192;

// BLAKE2b in its tree mode (section 2.10 of its specification) of a total's frame, 32 bytes: leaves of
// kTotalLeafBytes and a root over their digests, personalised. Leaves do not depend on each other,
// so that they are hashed several at a time. `threads`: as for threads_for(); the digest does not depend on
// it. For public data.
Digest total_digest(std::span<const std::uint8_t> frame, std::size_t threads);

}  // namespace shieldfl::scheme
