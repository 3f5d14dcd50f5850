// The kernels of clipping and Gaussian noise over the vectors of noise_vectors.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "noise/noise_vectors.h"

namespace shieldfl::noise {
namespace {

SHIELDFL_NOISE_INLINE Doubles square_root(Doubles x) {
#if SHIELDFL_NOISE_LANES == 8
  return _mm512_maskz_sqrt_pd(0xff, x);  // GCC 12 warns about the form without a mask
#elif SHIELDFL_NOISE_LANES == 4
  return _mm256_sqrt_pd(x);
#elif defined(__SSE2__)
  return _mm_sqrt_pd(x);
#elif defined(__aarch64__)
  return vsqrtq_f64(x);
#else
  for (std::size_t i = 0; i < kLanes; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}

// Box-Muller is one chain of some 200 cycles of latency. Four chains go step by step side by side: a
// processor that reorders on its own runs out of room after one and a half.
constexpr std::size_t kChains = 4;
struct Chains {
  Doubles of[kChains];
};

#define SHIELDFL_NOISE_EACH_CHAIN _Pragma("GCC unroll 4") for (std::size_t i = 0; i < kChains; ++i)

// p = p * z + coefficient
SHIELDFL_NOISE_INLINE void horner_step(Chains& p, const Chains& z, double coefficient) {
  SHIELDFL_NOISE_EACH_CHAIN p.of[i] = p.of[i] * z.of[i] + coefficient;
}

SHIELDFL_NOISE_INLINE Chains product(const Chains& a, const Chains& b) {
  Chains result;
  SHIELDFL_NOISE_EACH_CHAIN result.of[i] = a.of[i] * b.of[i];
  return result;
}

// The polynomials below interpolate their functions at Chebyshev nodes.

// -2 ln u for normal u in (0, 1). Relative error below 2^-37, also next to 1: u - 1 is exact there.
SHIELDFL_NOISE_INLINE Chains minus_two_log(const Chains& u) {
  constexpr std::uint64_t kOne = 0x3ff0000000000000;
  constexpr std::uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
  constexpr std::uint64_t kMantissa = 0x000fffffffffffff;
  constexpr std::uint64_t kTwoTo52 = 0x4330000000000000;
  constexpr double kMinusTwoLogOfTwo = -0x1.62e42fefa39efp+0;
  Chains s;
  Chains rest;
  SHIELDFL_NOISE_EACH_CHAIN {
    // u = m 2^(k - 1023) with m in [sqrt(1/2), sqrt(2)); k becomes the low bits of 2^52 + k.
    const Words shifted = (Words)u.of[i] + (kOne - kRootOfHalf);
    const Doubles m = (Doubles)((shifted & kMantissa) + kRootOfHalf);
    rest.of[i] = ((Doubles)((shifted >> 52) | kTwoTo52) - (0x1p52 + 1023.0)) * kMinusTwoLogOfTwo;
    s.of[i] = (m - 1.0) / (m + 1.0);
  }
  // -2 ln m = s q(s^2)
  const Chains z = product(s, s);
  Chains q;
  SHIELDFL_NOISE_EACH_CHAIN q.of[i] = z.of[i] * -0x1.e3a9bc9e83906p-2 + -0x1.2432ec97e26d1p-1;
  horner_step(q, z, -0x1.999a9bbfcf938p-1);
  horner_step(q, z, -0x1.555554db6d410p+0);
  horner_step(q, z, -0x1.0000000004988p+2);
  SHIELDFL_NOISE_EACH_CHAIN rest.of[i] = rest.of[i] + s.of[i] * q.of[i];
  return rest;
}

// sin(pi t / 2) for |t| <= 1/2, given z = t^2. Relative error below 2^-37.
SHIELDFL_NOISE_INLINE Chains sine_of_quarters(const Chains& t, const Chains& z) {
  Chains p;
  SHIELDFL_NOISE_EACH_CHAIN p.of[i] = z.of[i] * 0x1.4bc85ccb213adp-13 + -0x1.32ca9d79fc665p-8;
  horner_step(p, z, 0x1.466bbac8a54e8p-4);
  horner_step(p, z, -0x1.4abbce56ae6e6p-1);
  horner_step(p, z, 0x1.921fb5443b587p+0);
  return product(p, t);
}

// cos(pi t / 2) for |t| <= 1/2, given z = t^2. Relative error below 2^-33.7.
SHIELDFL_NOISE_INLINE Chains cosine_of_quarters(const Chains& z) {
  Chains p;
  SHIELDFL_NOISE_EACH_CHAIN p.of[i] = z.of[i] * 0x1.d9c2e7f15bcf2p-11 + -0x1.55c57912f05fdp-6;
  horner_step(p, z, 0x1.03c1dc16cde6ep-2);
  horner_step(p, z, -0x1.3bd3cc7313b31p+0);
  horner_step(p, z, 0x1.ffffffff9785fp-1);
  return p;
}

struct ChainWords {
  Words of[kChains];
};

struct PairsOfDraws {
  Chains first;
  Chains second;
};

// Box-Muller, times `deviation`: see noise_kernels.h for which bit does what. Of `pieces` the low 16 bits
// count.
SHIELDFL_NOISE_INLINE PairsOfDraws gaussian_pairs(const ChainWords& radius_words, const ChainWords& pieces,
                                                  double deviation) {
  constexpr std::uint64_t kOne = 0x3ff0000000000000;
  Chains u;
  SHIELDFL_NOISE_EACH_CHAIN {
    u.of[i] = (Doubles)((radius_words.of[i] >> 12) | kOne) - (1.0 - 0x1p-53);
  }
  Chains radius = minus_two_log(u);
  SHIELDFL_NOISE_EACH_CHAIN radius.of[i] = square_root(radius.of[i]);

  Chains t;
  SHIELDFL_NOISE_EACH_CHAIN {
    const Words fraction = ((radius_words.of[i] & 0xfff) << 40) | ((pieces.of[i] & 0x3fff) << 26);
    t.of[i] = (Doubles)(fraction | kOne) - (1.5 - 0x1p-27);
  }
  const Chains z = product(t, t);
  const Chains sines = sine_of_quarters(t, z);
  const Chains cosines = cosine_of_quarters(z);
  PairsOfDraws pairs;
  SHIELDFL_NOISE_EACH_CHAIN {
    const Doubles length = radius.of[i] * deviation;
    const Words sign = (pieces.of[i] & 0x8000) << 48;
    const Words cosine = (Words)(length * cosines.of[i]) ^ sign;
    const Words sine = (Words)(length * sines.of[i]);
    const Words swap = (cosine ^ sine) & (Words{} - ((pieces.of[i] >> 14) & 1));
    pairs.first.of[i] = (Doubles)(cosine ^ swap);
    pairs.second.of[i] = (Doubles)(sine ^ swap);
  }
  return pairs;
}

// Partial sum j is over the values at positions j, j + 16, j + 32, ...; the 16 are then added pairwise.
double sum_of_squares(const float* values, std::size_t count) {
  constexpr std::size_t kPartialSums = 16;
  Doubles sums[kPartialSums / kLanes] = {};
  std::size_t i = 0;
  for (; i + kPartialSums <= count; i += kPartialSums) {
    for (std::size_t part = 0; part < kPartialSums / kLanes; ++part) {
      const Doubles x = load_doubles(values + i + part * kLanes);
      sums[part] += x * x;
    }
  }
  for (std::size_t j = 0; i + j < count; ++j) {
    const double x = values[i + j];
    sums[j / kLanes][j % kLanes] += x * x;
  }
  double tree[kPartialSums];
  for (std::size_t j = 0; j < kPartialSums; ++j) tree[j] = sums[j / kLanes][j % kLanes];
  for (std::size_t half = kPartialSums / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) tree[j] += tree[j + half];
  }
  return tree[0];
}

void scale(const float* in, float* out, std::size_t count, double factor) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_floats(out + i, load_doubles(in + i) * factor);
  for (; i < count; ++i) out[i] = static_cast<float>(in[i] * factor);
}

void scale_and_add_gaussian(const float* in, float* out, const std::uint64_t* words, std::size_t groups,
                            double factor, double deviation) {
  static_assert(kChains * kAngleWords == kRadiusWords, "an angle word has one piece for each chain");
  for (std::size_t group = 0; group < groups; ++group) {
    for (std::size_t at = 0; at < kAngleWords; at += kLanes) {
      const Words four_pieces = load_words(words + kRadiusWords + at);
      ChainWords radius;
      ChainWords pieces;
      SHIELDFL_NOISE_EACH_CHAIN {
        radius.of[i] = load_words(words + i * kAngleWords + at);
        pieces.of[i] = four_pieces >> (16 * i);
      }
      const PairsOfDraws draws = gaussian_pairs(radius, pieces, deviation);
      SHIELDFL_NOISE_EACH_CHAIN {
        const std::size_t first = i * kAngleWords + at;
        const std::size_t second = kRadiusWords + first;
        store_floats(out + first, load_doubles(in + first) * factor + draws.first.of[i]);
        store_floats(out + second, load_doubles(in + second) * factor + draws.second.of[i]);
      }
    }
    words += kWordsPerGroup;
    in += kGaussianGroup;
    out += kGaussianGroup;
  }
}

#undef SHIELDFL_NOISE_EACH_CHAIN

}  // namespace
}  // namespace shieldfl::noise
