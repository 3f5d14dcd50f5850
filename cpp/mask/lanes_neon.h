// Two words at a time, for files that are compiled for 64-bit ARM.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace shieldfl::mask {
namespace {

struct NeonLanes {
  using Vector = uint64x2_t;
  static constexpr std::size_t kWords = 2;

  static Vector zero() { return vdupq_n_u64(0); }
  static Vector load(const std::uint64_t* from) { return vld1q_u64(from); }
  static void store(std::uint64_t* to, Vector v) { vst1q_u64(to, v); }
  // The first `words` words, fewer than kWords; zeros for the others.
  static Vector load_some(const std::uint64_t* from, std::size_t words) {
    return words == 0 ? zero() : vsetq_lane_u64(from[0], zero(), 0);
  }
  static void store_some(std::uint64_t* to, Vector v, std::size_t words) {
    if (words != 0) to[0] = vgetq_lane_u64(v, 0);
  }

  static Vector parity(Vector a, Vector b, Vector c) { return a ^ b ^ c; }
  // Where a and b differ it is c that tells, and else either of them.
  static Vector majority(Vector a, Vector b, Vector c) { return vbslq_u64(a ^ b, c, a); }
  static bool any(Vector v) { return vmaxvq_u32(vreinterpretq_u32_u64(v)) != 0; }

  // The number of set bits per word.
  static Vector count(Vector v) {
    return vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(vcntq_u8(vreinterpretq_u8_u64(v)))));
  }
  static std::uint64_t total(Vector v) { return vaddvq_u64(v); }
};

}  // namespace
}  // namespace shieldfl::mask
