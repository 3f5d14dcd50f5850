// The arithmetic of a share of distributed noise: randomised rounding, and draws from a table. One table of
// functions per instruction set; all give the same bits. Values come in whole groups.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl {
enum class InstructionSet : std::uint8_t;
}

namespace shieldfl::noise {

inline constexpr std::size_t kShareGroup = 16;
inline constexpr std::size_t kRoundingWordsPerGroup = 8;  // two values share a random word
inline constexpr std::size_t kDrawWordsPerGroup = kShareGroup;

// No rounded value may be larger in magnitude.
inline constexpr double kMostRounded = 0x1p29;

struct ShareKernels {
  // With x = values[i] * steps, rounded to double, and its fraction f = x - floor(x): rounded[i] is
  // floor(x) + 1 where (r + 1/2) 2^-32 < f, else floor(x); then brought within -most and most. Value i of a
  // group takes the low half of word i as r, or from the eighth value on the high half of word i - 8. So an
  // integer stays what it is, and the mean is x up to 2^-33. Returns the sum of the squares of what the
  // integers were before they were brought within bounds. Preconditions: |x| < kMostRounded, and the sum is
  // below 2^64.
  //
  // No branch and no address depends on values or words.
  std::uint64_t (*round)(const float* values, std::int32_t* rounded, const std::uint64_t* words,
                         std::size_t groups, double steps, std::int32_t most);

  // sums[i] = values[i] + a draw, brought within -most and most. Word w, one a value, chooses bucket b: its
  // bits from bit 1 on, as many as `bucket_mask` has. The draw's magnitude is b where w's high half is below
  // that of buckets[b], and otherwise the low half of buckets[b]; it is negative where bit 0 of w is set.
  // Returns true where two high halves were equal, so that more bits have to tell: then all sums are void.
  // Preconditions: no value is above 2^30 in magnitude, and no draw's is 2^30 or more: 32 bits hold the sums.
  //
  // The address of buckets[b] depends on the draw: hence the name.
  bool (*add_draws_vartime)(const std::int32_t* values, std::int32_t* sums, const std::uint64_t* words,
                            std::size_t groups, const std::uint64_t* buckets, std::uint64_t bucket_mask,
                            std::int32_t most);
};

extern const ShareKernels kShareKernelsScalar;
extern const ShareKernels kShareKernelsAvx2;
extern const ShareKernels kShareKernelsAvx512;

// Precondition: this processor supports `set`.
const ShareKernels& share_kernels(InstructionSet set);

}  // namespace shieldfl::noise
