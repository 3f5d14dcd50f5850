// The one-time pads of a frame: key streams of ChaCha20 under the frame's seed, one for each block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/random.h"
#include "pads/pad_kernels.h"
#include "pads/parameters.h"

namespace shieldfl::pads {

class PadAdder {
 public:
  explicit PadAdder(const ParameterFacts& facts);

  // out[i] = in[i] + pad i of a block of the frame whose seed this is, modulo 2^field_bits; kBlockWords of
  // each, and both may be the same. Constant-time.
  void add(const Seed& frame_seed, std::size_t block, std::span<const std::uint64_t> in,
           std::span<std::uint64_t> out) const;

 private:
  const PadKernels& kernels_;
  std::uint64_t mask_;
  bool short_pads_;
};

}  // namespace shieldfl::pads
