// A client's three zones (SelectiveShield, section 4.2: M_enc, M_pers,n, M_noise,n).
#pragma once

#include "mask/bitset.h"

namespace shieldfl::mask {

// Disjoint, and together all positions.
struct Zones {
  Bitset encrypted;     // negotiated: the same for every client
  Bitset personalised;  // sensitive to this client alone: stays with it
  Bitset noise;         // everything else
};

// personalised = local \ encrypted, noise = neither. Throws Error(kParameter) where the sizes differ.
Zones split_zones(const Bitset& local, const Bitset& encrypted);

// Throws Error(kParameter) where the sizes differ, Error(kInternal) unless the zones are disjoint and
// covering.
void check_zones(const Zones& zones);

}  // namespace shieldfl::mask
