// Powers of one base, 64 exponents to a look-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "paillier/engine.h"
#include "paillier/ifma_montgomery.h"

namespace shieldfl::paillier {

// Numbers that go through a row of the table before the next one is read.
inline constexpr std::size_t kFixedBaseBatch = 256;

std::unique_ptr<const FixedBase> make_ifma_fixed_base(std::shared_ptr<const IfmaMontgomery> montgomery,
                                                      std::span<const std::uint64_t> base,
                                                      std::size_t exponent_bits);

}  // namespace shieldfl::paillier
