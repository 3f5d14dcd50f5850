// From random words to samples: the loops of sampler.h, which says in what order bits become samples.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl {

enum class InstructionSet : std::uint8_t;

namespace ring {

// A pair of words proposes this many ternary samples.
inline constexpr std::size_t kTernaryProposals = 64;

// An error is the heads of this many coins less those of as many others.
inline constexpr int kErrorCoins = 21;
inline constexpr std::size_t kErrorGroupWords = 16;
inline constexpr std::size_t kErrorGroupSamples = 24;

// Constant-time in the words, given `rejected`. Inputs and outputs may not overlap.
struct SamplerKernels {
  // Pair p is words[2 p] and words[2 p + 1], and rejected[p] is the two ANDed. Writes the samples of all the
  // proposals that are kept, one behind the other, and returns how many. `out` has room for
  // kTernaryProposals * pairs samples, and all of it may be written.
  std::size_t (*ternary)(const std::uint64_t* words, const std::uint64_t* rejected, std::size_t pairs,
                         std::int8_t* out);

  // Writes kErrorGroupSamples * groups samples of kErrorGroupWords * groups words.
  void (*error)(const std::uint64_t* words, std::size_t groups, std::int8_t* out);
};

extern const SamplerKernels kSamplerKernelsScalar;
extern const SamplerKernels kSamplerKernelsNeon;    // on 64-bit ARM alone
extern const SamplerKernels kSamplerKernelsAvx2;    // on x86-64 alone
extern const SamplerKernels kSamplerKernelsAvx512;  // on x86-64 alone

// `set` is at most best_instruction_set().
const SamplerKernels& sampler_kernels(InstructionSet set);

}  // namespace ring
}  // namespace shieldfl
