// How GMP counts: its limbs are words of 64 bits.
#pragma once

#include <gmp.h>

#include <cstddef>

namespace shieldfl::paillier {

inline mp_size_t limbs_of(std::size_t words) {
  return static_cast<mp_size_t>(words);
}

}  // namespace shieldfl::paillier
