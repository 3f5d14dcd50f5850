// Vectors of SHIELDFL_NOISE_LANES doubles, which whoever includes this defines: 2, 4 or 8; and how they come
// from memory and go there. Everything is local to the including file, since each is compiled for another
// instruction set.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstddef>
#include <cstdint>

namespace shieldfl::noise {
namespace {

constexpr std::size_t kLanes = SHIELDFL_NOISE_LANES;

using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));
using Words = std::uint64_t __attribute__((vector_size(kLanes * sizeof(std::uint64_t))));
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));

// The same in memory, without alignment.
using StoredWords = std::uint64_t
    __attribute__((vector_size(kLanes * sizeof(std::uint64_t)), aligned(alignof(std::uint64_t)), may_alias));
using StoredFloats =
    float __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

#define SHIELDFL_NOISE_INLINE [[gnu::always_inline]] inline

SHIELDFL_NOISE_INLINE Words load_words(const std::uint64_t* from) {
  return *reinterpret_cast<const StoredWords*>(from);
}

SHIELDFL_NOISE_INLINE Doubles load_doubles(const float* from) {
  const Floats values = *reinterpret_cast<const StoredFloats*>(from);
#if SHIELDFL_NOISE_LANES == 8
  return _mm512_maskz_cvtps_pd(0xff, values);  // the compiler would make two halves of the general form
#else
  return __builtin_convertvector(values, Doubles);
#endif
}

SHIELDFL_NOISE_INLINE void store_floats(float* to, Doubles values) {
  *reinterpret_cast<StoredFloats*>(to) = __builtin_convertvector(values, Floats);
}

}  // namespace
}  // namespace shieldfl::noise
