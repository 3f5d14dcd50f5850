// Four doubles, or four 64-bit integers, in two vectors, for the NEON kernels of the ring alone: what
// double_lanes.h does its arithmetic with. Two vectors are four lanes as AVX2 has them, and the halves do not
// wait for each other.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace shieldfl::ring {
namespace {

struct Lanes {
  float64x2_t low, high;
};

struct Integers {
  int64x2_t low, high;
};

constexpr std::size_t kLanes = 4;

inline Lanes operator+(Lanes a, Lanes b) {
  return {a.low + b.low, a.high + b.high};
}

inline Lanes operator-(Lanes a, Lanes b) {
  return {a.low - b.low, a.high - b.high};
}

inline Lanes operator*(Lanes a, Lanes b) {
  return {a.low * b.low, a.high * b.high};
}

inline Lanes operator/(Lanes a, Lanes b) {
  return {a.low / b.low, a.high / b.high};
}

inline Integers operator+(Integers a, Integers b) {
  return {a.low + b.low, a.high + b.high};
}

inline Integers operator-(Integers a, Integers b) {
  return {a.low - b.low, a.high - b.high};
}

inline Integers operator&(Integers a, Integers b) {
  return {a.low & b.low, a.high & b.high};
}

inline Integers operator~(Integers a) {
  return {~a.low, ~a.high};
}

inline Lanes as_lanes(Integers x) {
  return {vreinterpretq_f64_s64(x.low), vreinterpretq_f64_s64(x.high)};
}

inline Integers as_integers(Lanes x) {
  return {vreinterpretq_s64_f64(x.low), vreinterpretq_s64_f64(x.high)};
}

inline float64x2_t load_two(const std::uint64_t* from) {
  return vreinterpretq_f64_u64(vld1q_u64(from));
}

inline Lanes load(const std::uint64_t* from) {
  return {load_two(from), load_two(from + 2)};
}

inline void store(std::uint64_t* to, Lanes x) {
  vst1q_u64(to, vreinterpretq_u64_f64(x.low));
  vst1q_u64(to + 2, vreinterpretq_u64_f64(x.high));
}

inline Lanes broadcast(double value) {
  return {vdupq_n_f64(value), vdupq_n_f64(value)};
}

inline float64x2_t load_twice(const std::uint64_t* from) {
  return vreinterpretq_f64_u64(vld1q_dup_u64(from));
}

inline Lanes broadcast(const std::uint64_t* from) {
  return {load_twice(from), load_twice(from)};
}

// The first `count` < 4 lanes, and access to them alone; others are loaded as zero.
inline std::size_t first_lanes(std::size_t count) {
  return count;
}

inline Lanes load_some(const std::uint64_t* from, std::size_t count) {
  std::uint64_t lanes[kLanes] = {};
  for (std::size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load(lanes);
}

inline void store_some(std::uint64_t* to, std::size_t count, Lanes x) {
  std::uint64_t lanes[kLanes];
  store(lanes, x);
  for (std::size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

inline Lanes or_bits(Lanes a, Lanes b) {
  const Integers x = as_integers(a);
  const Integers y = as_integers(b);
  return as_lanes({x.low | y.low, x.high | y.high});
}

inline Lanes xor_bits(Lanes a, Lanes b) {
  const Integers x = as_integers(a);
  const Integers y = as_integers(b);
  return as_lanes({x.low ^ y.low, x.high ^ y.high});
}

// `value` where x < 0, else 0.
inline Lanes keep_where_negative(Lanes value, Lanes x) {
  const Integers where = {vreinterpretq_s64_u64(vcltzq_f64(x.low)),
                          vreinterpretq_s64_u64(vcltzq_f64(x.high))};
  return as_lanes(as_integers(value) & where);
}

// a b + c, a b - c and c - a b, rounded once. There is no instruction for the second: what takes it adds it
// to something, and the compiler subtracts the third from that instead.
inline Lanes fused_sum(Lanes a, Lanes b, Lanes c) {
  return {vfmaq_f64(c.low, a.low, b.low), vfmaq_f64(c.high, a.high, b.high)};
}

inline Lanes fused_rest(Lanes c, Lanes a, Lanes b) {
  return {vfmsq_f64(c.low, a.low, b.low), vfmsq_f64(c.high, a.high, b.high)};
}

inline Lanes fused_difference(Lanes a, Lanes b, Lanes c) {
  const Lanes rest = fused_rest(c, a, b);
  return {-rest.low, -rest.high};
}

// Elements 0, 0, 2, 2.
inline Lanes load_even_twice(const std::uint64_t* from) {
  return {load_twice(from), load_twice(from + 2)};
}

// Elements 0, 1, 4, 5.
inline Lanes load_pairs(const std::uint64_t* from) {
  return {load_two(from), load_two(from + 4)};
}

// Brings elements two apart to the same place of two vectors, and back:
// (0 1 2 3), (8 9 10 11) <-> (0 1 8 9), (2 3 10 11).
inline void exchange_halves(Lanes& a, Lanes& b) {
  const float64x2_t high = a.high;
  a.high = b.low;
  b.low = high;
}

// The same for neighbours: (0 1 8 9), (2 3 10 11) <-> (0 2 8 10), (1 3 9 11).
inline void exchange_neighbours(Lanes& a, Lanes& b) {
  const Lanes even = {vzip1q_f64(a.low, b.low), vzip1q_f64(a.high, b.high)};
  b = {vzip2q_f64(a.low, b.low), vzip2q_f64(a.high, b.high)};
  a = even;
}

inline Integers load_integers(const std::uint64_t* from) {
  return as_integers(load(from));
}

inline Integers load_integers(const std::int64_t* from) {
  return {vld1q_s64(from), vld1q_s64(from + 2)};
}

using UnalignedWord = std::uint32_t __attribute__((aligned(1), may_alias));

inline Integers load_samples(const std::int8_t* from) {
  const auto* const four = reinterpret_cast<const UnalignedWord*>(from);
  const int16x8_t shorts = vmovl_s8(vreinterpret_s8_u32(uint32x2_t{*four, 0}));
  const int32x4_t integers = vmovl_s16(vget_low_s16(shorts));
  return {vmovl_s32(vget_low_s32(integers)), vmovl_high_s32(integers)};
}

inline void store_integers(std::uint64_t* to, Integers x) {
  store(to, as_lanes(x));
}

inline Integers broadcast_integer(std::uint64_t value) {
  const int64x2_t twice = vreinterpretq_s64_u64(vdupq_n_u64(value));
  return {twice, twice};
}

// All ones where x < 0, else 0.
inline Integers negative(Integers x) {
  return {vshrq_n_s64(x.low, 63), vshrq_n_s64(x.high, 63)};
}

}  // namespace
}  // namespace shieldfl::ring
