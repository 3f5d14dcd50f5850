// The consensus of masks that are all at hand, and what it makes of every client's mask (SelectiveShield,
// eqs. 15 to 18). votes.h is for masks that arrive one by one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mask/bitset.h"

namespace shieldfl::mask {

// The positions that at least votes_needed(rho, masks.size()) masks have, in one pass over them, in constant
// memory. Throws Error(kParameter) for no masks, masks of different sizes, or rho outside (0, 1]. `threads`:
// 0 means all cores; the result does not depend on it.
Bitset negotiate(std::span<const Bitset* const> masks, double rho, std::size_t threads = 0);

// One client's part of what was negotiated.
struct ClientZones {
  Bitset personalised;  // in this client's mask and not encrypted
  Bitset noise;         // neither
};

// The encrypted zone, which all clients share, and the zones of each, in the order of the masks. A client's
// three zones are disjoint and together all positions (zones.h).
struct NegotiatedZones {
  Bitset encrypted;
  std::vector<ClientZones> clients;
};

// negotiate() and split_zones() for every mask, in one pass: a block of all masks is read once, and split
// while it is in the cache. Errors and threads as in negotiate().
NegotiatedZones negotiate_zones(std::span<const Bitset* const> masks, double rho, std::size_t threads = 0);

}  // namespace shieldfl::mask
