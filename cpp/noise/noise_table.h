// A symmetric distribution on the integers as a table, from which drawing takes one random word and one
// look-up: Walker's alias method (1977), set up as Vose's (1991).
//
// Bucket b, of 2^L, has a threshold t_b below 2^128 and another magnitude a_b. A draw takes a uniform bucket
// b and a uniform integer u below 2^128: its magnitude is b where u < t_b, else a_b; and its sign is uniform.
// So every magnitude has a probability that is a multiple of 2^-(128 + L), exactly, which whoever makes the
// table has chosen: shieldfl/privacy/noise_table.py does it for the discrete Gaussian and the Skellam
// distribution, and bounds their distance from it.
//
// The table is public, but the address of what is looked up depends on the draw: whoever sees which lines of
// a cache this processor reads learns about the noise. Hence the names. (A draw without such an address would
// have to be compared with every cumulative probability: thousands of steps where the deviation is a
// thousand.) All else takes the same time for all draws, but for one block of 4096 in about a million, where
// more than 32 bits of u have to be compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/random.h"

namespace shieldfl::noise {

inline constexpr unsigned kMostLog2Buckets = 20;

class NoiseTable {
 public:
  // The thresholds' high and low words, and the other magnitudes. A bucket that is full has its own magnitude
  // as the other one. Throws Error(kParameter) unless the sizes are the same power of two, from 2 to
  // 2^kMostLog2Buckets, and all the magnitudes below it.
  NoiseTable(std::span<const std::uint64_t> high, std::span<const std::uint64_t> low,
             std::span<const std::uint32_t> others);

  // sums[i] = values[i] + an independent draw, brought within -most and most. Value i takes word i of
  // `words`: bit 0 is the sign, bits 1 to L the bucket, bits 32 to 63 the highest bits of u. Where those do
  // not decide, the others come from two words of `more`, in the order of the values: the next 32 are the low
  // half of the first, the last 64 the second. Preconditions: all spans have one size, a multiple of
  // kShareGroup, and share no memory; no value is above 2^30 in magnitude, and `most` is positive.
  void add_draws_vartime(std::span<const std::int32_t> values, std::span<std::int32_t> sums,
                         std::span<const std::uint64_t> words, RandomStream& more, std::int32_t most) const;

 private:
  std::vector<std::uint64_t> buckets_;  // the threshold's highest 32 bits above the other magnitude
  std::vector<std::uint32_t> next_;     // its next 32 bits
  std::vector<std::uint64_t> last_;     // its last 64 bits
};

}  // namespace shieldfl::noise
