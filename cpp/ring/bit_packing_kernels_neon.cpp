#include <arm_neon.h>

#include "ring/bit_packing_pairs.h"

namespace shieldfl::ring {
namespace {

// A pair in a vector.
struct Neon {
  using Vector = uint64x2_t;
  static constexpr std::size_t kFields = 2;

  static Vector broadcast(std::uint64_t word) { return vdupq_n_u64(word); }
  static Vector load(const std::uint64_t* from) { return vld1q_u64(from); }
  static void store(std::uint64_t* to, Vector x) { vst1q_u64(to, x); }

  static Vector load_first(const std::uint64_t* from, std::size_t count) {
    return count >= kFields ? load(from) : vcombine_u64(vld1_u64(from), vcreate_u64(0));
  }
  static void store_first(std::uint64_t* to, std::size_t count, Vector x) {
    if (count >= kFields) {
      store(to, x);
    } else {
      vst1q_lane_u64(to, x, 0);
    }
  }

  static Vector load_pairs(const std::uint8_t* bytes, const std::size_t* offsets) {
    return vreinterpretq_u64_u8(vld1q_u8(bytes + offsets[0]));
  }
  static void store_pairs(std::uint8_t* bytes, const std::size_t* offsets, Vector x) {
    vst1q_u8(bytes + offsets[0], vreinterpretq_u8_u64(x));
  }

  static Vector shuffle_bytes(Vector x, Vector order) {
    return vreinterpretq_u64_u8(vqtbl1q_u8(vreinterpretq_u8_u64(x), vreinterpretq_u8_u64(order)));
  }

  // There is one instruction, which shifts to the left, or to the right by what is below zero.
  struct Shift {
    int64x2_t bits;

    explicit Shift(unsigned count) : bits(vdupq_n_s64(static_cast<std::int64_t>(count))) {}
  };
  static Vector left(Vector x, Shift by) { return vshlq_u64(x, by.bits); }
  static Vector right(Vector x, Shift by) { return vshlq_u64(x, vnegq_s64(by.bits)); }
  static Vector left_each(Vector x, Vector shifts) { return vshlq_u64(x, vreinterpretq_s64_u64(shifts)); }
  static Vector right_each(Vector x, Vector shifts) {
    return vshlq_u64(x, vnegq_s64(vreinterpretq_s64_u64(shifts)));
  }

  static Vector even_lanes(Vector x) { return vzip1q_u64(x, broadcast(0)); }
  static Vector pairs_before(Vector before, Vector /*x*/) { return before; }
  static Vector sum(Vector a, Vector b) { return vaddq_u64(a, b); }
  static Vector difference(Vector a, Vector b) { return vsubq_u64(a, b); }
  static bool any_negative(Vector x) { return (vgetq_lane_u64(x, 0) | vgetq_lane_u64(x, 1)) >> 63 != 0; }
};

}  // namespace

const BitPackingKernels kBitPackingKernelsNeon = BitPackingPairs<Neon>::kernels();

}  // namespace shieldfl::ring
