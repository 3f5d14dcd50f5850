// The kernels of the Walsh-Hadamard transform over vectors of SHIELDFL_ROTATION_BYTES bytes, which whoever
// includes this defines: 16, 32 or 64. Everything is local to the including file, since each is compiled for
// another instruction set.
#pragma once

#if SHIELDFL_ROTATION_BYTES > 16
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>

#include "noise/rotation_kernels.h"

namespace shieldfl::noise {
namespace {

#define SHIELDFL_ROTATION_INLINE [[gnu::always_inline]] inline

// Vectors of T, of words with as many bits, and the former in memory without alignment.
template <typename T>
struct Lanes;

template <>
struct Lanes<float> {
  using Bits = std::uint32_t;
  using Vector = float __attribute__((vector_size(SHIELDFL_ROTATION_BYTES)));
  using BitVector = std::uint32_t __attribute__((vector_size(SHIELDFL_ROTATION_BYTES)));
  using Stored =
      float __attribute__((vector_size(SHIELDFL_ROTATION_BYTES), aligned(alignof(float)), may_alias));

  static constexpr std::size_t kCount = SHIELDFL_ROTATION_BYTES / sizeof(float);
};

template <>
struct Lanes<double> {
  using Bits = std::uint64_t;
  using Vector = double __attribute__((vector_size(SHIELDFL_ROTATION_BYTES)));
  using BitVector = std::uint64_t __attribute__((vector_size(SHIELDFL_ROTATION_BYTES)));
  using Stored =
      double __attribute__((vector_size(SHIELDFL_ROTATION_BYTES), aligned(alignof(double)), may_alias));

  static constexpr std::size_t kCount = SHIELDFL_ROTATION_BYTES / sizeof(double);
};

template <typename T>
constexpr typename Lanes<T>::Bits kSign = typename Lanes<T>::Bits{1} << (8 * sizeof(T) - 1);

template <typename T>
SHIELDFL_ROTATION_INLINE typename Lanes<T>::Vector load(const T* from) {
  return *reinterpret_cast<const typename Lanes<T>::Stored*>(from);
}

template <typename T>
SHIELDFL_ROTATION_INLINE void store(T* to, typename Lanes<T>::Vector values) {
  *reinterpret_cast<typename Lanes<T>::Stored*>(to) = values;
}

// Stages 0 to kStages - 1 across rows x[0], x[1], ...: every loop is unrolled, so that rows stay in
// registers.
template <unsigned kStages, typename Vector>
SHIELDFL_ROTATION_INLINE void cross(Vector* x) {
  constexpr unsigned kRows = 1U << kStages;
#pragma GCC unroll 8
  for (unsigned stage = 0; stage < kStages; ++stage) {
#pragma GCC unroll 32
    for (unsigned pair = 0; pair < kRows / 2; ++pair) {
      const unsigned low = pair & ((1U << stage) - 1);
      const unsigned i = 2 * (pair - low) + low;
      const Vector sum = x[i] + x[i + (1U << stage)];
      x[i + (1U << stage)] = x[i] - x[i + (1U << stage)];
      x[i] = sum;
    }
  }
}

// The lanes' numbers as arguments of a template.
template <std::size_t... kLane>
struct Numbers {};

template <std::size_t kCount, std::size_t... kLane>
struct NumbersBelow : NumbersBelow<kCount - 1, kCount - 1, kLane...> {};

template <std::size_t... kLane>
struct NumbersBelow<0, kLane...> {
  using Type = Numbers<kLane...>;
};

// x * signs + y, where signs are 1 and -1, so that only the addition rounds. As one operation where the
// processor has it: others of its units do it than additions.
template <typename T>
SHIELDFL_ROTATION_INLINE typename Lanes<T>::Vector add_signed(typename Lanes<T>::Vector x,
                                                              typename Lanes<T>::Vector signs,
                                                              typename Lanes<T>::Vector y) {
#if SHIELDFL_ROTATION_BYTES == 64
  if constexpr (sizeof(T) == sizeof(float))
    return _mm512_fmadd_ps(x, signs, y);
  else
    return _mm512_fmadd_pd(x, signs, y);
#elif SHIELDFL_ROTATION_BYTES == 32
  if constexpr (sizeof(T) == sizeof(float))
    return _mm256_fmadd_ps(x, signs, y);
  else
    return _mm256_fmadd_pd(x, signs, y);
#else
  using Bits = typename Lanes<T>::BitVector;
  return y + (typename Lanes<T>::Vector)((Bits)x ^ ((Bits)signs & kSign<T>));
#endif
}

// A stage within a vector: a lane has the sum with its partner, or what is left of the partner without it.
template <typename T, std::size_t kDistance, std::size_t... kLane>
SHIELDFL_ROTATION_INLINE typename Lanes<T>::Vector pair_lanes(typename Lanes<T>::Vector x,
                                                              Numbers<kLane...> /*lanes*/) {
  const typename Lanes<T>::Vector signs = {((kLane & kDistance) != 0 ? T{-1} : T{1})...};
#ifdef __clang__
  const auto partners = __builtin_shufflevector(x, x, (kLane ^ kDistance)...);
#else
  const auto partners = __builtin_shuffle(x, typename Lanes<T>::BitVector{(kLane ^ kDistance)...});
#endif
  return add_signed<T>(x, signs, partners);
}

template <typename T, std::size_t kDistance = 1>
SHIELDFL_ROTATION_INLINE typename Lanes<T>::Vector within(typename Lanes<T>::Vector x) {
  if constexpr (kDistance < Lanes<T>::kCount) {
    return within<T, 2 * kDistance>(
        pair_lanes<T, kDistance>(x, typename NumbersBelow<Lanes<T>::kCount>::Type{}));
  } else {
    return x;
  }
}

template <unsigned kStages, typename T>
SHIELDFL_ROTATION_INLINE void combine(const T* from, std::size_t from_stride, T* to, std::size_t to_stride,
                                      std::size_t columns) {
  constexpr std::size_t kRows = std::size_t{1} << kStages;
  for (std::size_t column = 0; column < columns; column += Lanes<T>::kCount) {
    typename Lanes<T>::Vector x[kRows];
#pragma GCC unroll 16
    for (std::size_t row = 0; row < kRows; ++row) x[row] = load(from + row * from_stride + column);
    cross<kStages>(x);
#pragma GCC unroll 16
    for (std::size_t row = 0; row < kRows; ++row) store(to + row * to_stride + column, x[row]);
  }
}

template <typename T>
void combine_rows(const T* from, std::size_t from_stride, T* to, std::size_t to_stride, unsigned stages,
                  std::size_t columns) {
  if (stages == 3) return combine<3>(from, from_stride, to, to_stride, columns);
  if (stages == 2) return combine<2>(from, from_stride, to, to_stride, columns);
  combine<1>(from, from_stride, to, to_stride, columns);
}

template <typename T>
void combine_all(T* values, unsigned log2_count, unsigned first_stage) {
  while (first_stage < log2_count) {
    const unsigned left = log2_count - first_stage;
    const unsigned stages = left == 4 ? 2 : (left < kMostStages ? left : kMostStages);
    const std::size_t stride = std::size_t{1} << first_stage;
    const std::size_t count = std::size_t{1} << log2_count;
    for (std::size_t i = 0; i < count; i += stride << stages) {
      combine_rows(values + i, stride, values + i, stride, stages, stride);
    }
    first_stage += stages;
  }
}

// What is one row of vectors, or less: few values, in the plainest way.
template <typename T>
void transform_few(T* values, std::size_t count) {
  for (std::size_t distance = 1; distance < count; distance *= 2) {
    for (std::size_t i = 0; i < count; ++i) {
      if ((i & distance) != 0) continue;
      const T a = values[i];
      const T b = values[i + distance];
      values[i] = a + b;
      values[i + distance] = a - b;
    }
  }
}

// The first stages, in one go over the memory: within vectors, then across eight of them.
template <typename T>
SHIELDFL_ROTATION_INLINE void transform_tile(T* values) {
  constexpr std::size_t kRows = std::size_t{1} << kMostStages;
  typename Lanes<T>::Vector x[kRows];
#pragma GCC unroll 16
  for (std::size_t row = 0; row < kRows; ++row) x[row] = within<T>(load(values + row * Lanes<T>::kCount));
  cross<kMostStages>(x);
#pragma GCC unroll 16
  for (std::size_t row = 0; row < kRows; ++row) store(values + row * Lanes<T>::kCount, x[row]);
}

template <typename T>
void transform(T* values, unsigned log2_count) {
  constexpr unsigned kLog2Tile = __builtin_ctzll(Lanes<T>::kCount) + kMostStages;
  const std::size_t count = std::size_t{1} << log2_count;
  if (log2_count < kLog2Tile) return transform_few(values, count);
  for (std::size_t i = 0; i < count; i += std::size_t{1} << kLog2Tile) transform_tile(values + i);
  combine_all(values, log2_count, kLog2Tile);
}

template <typename T>
void scale_and_sign(T* values, const std::uint64_t* signs, std::size_t count, T factor) {
  using Bits = typename Lanes<T>::BitVector;
  Bits lane_bits = {};
  for (std::size_t lane = 0; lane < Lanes<T>::kCount; ++lane) {
    lane_bits[lane] = static_cast<typename Lanes<T>::Bits>(1U << lane);
  }
  std::size_t i = 0;
  for (; i + Lanes<T>::kCount <= count; i += Lanes<T>::kCount) {
    const auto bits = static_cast<typename Lanes<T>::Bits>(signs[i / 64] >> (i % 64));
    const Bits negative = (Bits)(((Bits{} + bits) & lane_bits) != 0) & kSign<T>;
    store(values + i, (typename Lanes<T>::Vector)((Bits)(load(values + i) * factor) ^ negative));
  }
  for (; i < count; ++i) {
    const T scaled = values[i] * factor;
    values[i] = ((signs[i / 64] >> (i % 64)) & 1) != 0 ? -scaled : scaled;
  }
}

#undef SHIELDFL_ROTATION_INLINE

}  // namespace
}  // namespace shieldfl::noise
