// The engine in AVX-512 IFMA: eight numbers at once, in the lanes of ifma_kernels.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "paillier/engine.h"

namespace shieldfl::paillier {

// `modulus` as of Engine::make. Null where this build or this processor has no such kernels.
std::shared_ptr<const Engine> make_ifma_engine(std::span<const std::uint64_t> modulus);

}  // namespace shieldfl::paillier
