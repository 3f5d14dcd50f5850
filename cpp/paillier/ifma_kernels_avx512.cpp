#include <immintrin.h>

#include "common/verify.h"
#include "paillier/ifma_columns_avx512.h"
#include "paillier/ifma_kernels.h"
#include "paillier/ifma_lanes_avx512.h"
#include "paillier/ifma_tables_avx512.h"

namespace shieldfl::paillier {
namespace {

static_assert(kLane == kGroup && kTile == kLimbsMultiple && kLimbPlanes == kLimbBytes);

// The scratch of a product of pairs.
struct Scratch {
  Scratch(std::uint64_t* words, std::size_t limbs)
      : low(words),
        high(words + 2 * limbs * kLane),
        digits(words + 4 * limbs * kLane),
        doubled(words + 5 * limbs * kLane) {}
  std::uint64_t* low;      // columns of the low halves' product
  std::uint64_t* high;     // columns of the mixed products
  std::uint64_t* digits;   // of a quotient
  std::uint64_t* doubled;  // a half
};

// Whether vectors hold limbs whose carries are all done.
[[maybe_unused]] bool are_carried(const std::uint64_t* lanes, std::size_t limbs) {
  return is_aligned(lanes, 64) && all_below(lanes, limbs * kLane, std::uint64_t{1} << kLimbBits);
}

// Whether all numbers of a group are below n.
[[maybe_unused]] bool are_reduced(const IfmaModulus& modulus, const std::uint64_t* lanes) {
  for (std::size_t k = 0; k < kLane; ++k) {
    std::size_t i = modulus.limbs - 1;
    while (i > 0 && lanes[kLane * i + k] == modulus.n[i]) --i;
    if (lanes[kLane * i + k] >= modulus.n[i]) return false;
  }
  return true;
}

// Two halves whose product is due.
struct Halves {
  const std::uint64_t* x;
  const std::uint64_t* y;
};

// With m the quotient's digits, columns + m * n is a multiple of R: t * R, t in columns `limbs` and on,
// uncarried.
void reduce_columns(const IfmaModulus& modulus, std::uint64_t* columns, std::uint64_t* digits) {
  for (std::size_t row = 0; row < modulus.limbs; row += kTile) {
    quotient_digits(modulus.n, modulus.quotient_factor, columns + kLane * row, digits + kLane * row);
    add_quotient(digits + kLane * row, modulus.n, modulus.limbs, columns + kLane * row);
  }
}

// (low + high * n) / R as a pair, where low is in its columns and high is the sum of two products, the second
// without factors if there is none. Modulo n^2, as low = t * R - m * n, it is
//   t + n * (high - m) / R,
// with -m as its complement R - 1 - m, and 1 - R modulo n added.
//
// With low below 2.5 n^2, high below 5 n^2 and R > 32 n, t is below n + 2.5 n / 32, and the other half below
// n + 5 n / 32 + (R + n) / R: both below 1.2 n. Where they are below 1.1 R n, both are below 2.2 n.
//
// A quotient's digits are a chain, each waiting for the one before. So a part of high that nothing waits for
// is computed after each: the processor looks that far ahead.
void finish_pair(const IfmaModulus& modulus, const Scratch& scratch, Halves first, Halves second,
                 std::uint64_t* out) {
  const std::size_t limbs = modulus.limbs;
  clear(scratch.high, 2 * limbs);
  for (std::size_t row = 0; row < limbs; row += kTile) {
    std::uint64_t* const digits = scratch.digits + kLane * row;
    quotient_digits(modulus.n, modulus.quotient_factor, scratch.low + kLane * row, digits);
    add_row(first.x, row, LaneFactor{first.y}, limbs, scratch.high);
    add_quotient(digits, modulus.n, limbs, scratch.low + kLane * row);
    for (std::size_t i = 0; i < kTile; ++i) {
      std::uint64_t* const column = scratch.high + kLane * (row + i);
      const Lanes complement =
          _mm512_sub_epi64(broadcast(modulus.complement[row + i]), load(digits + kLane * i));
      store(column, _mm512_add_epi64(load(column), complement));
    }
  }
  if (second.x != nullptr) add_row(second.x, 0, LaneFactor{second.y}, limbs, scratch.high);
  for (std::size_t row = 0; row < limbs; row += kTile) {
    std::uint64_t* const digits = scratch.digits + kLane * row;
    quotient_digits(modulus.n, modulus.quotient_factor, scratch.high + kLane * row, digits);
    const std::size_t next = row + kTile;
    if (second.x != nullptr && next < limbs)
      add_row(second.x, next, LaneFactor{second.y}, limbs, scratch.high);
    add_quotient(digits, modulus.n, limbs, scratch.high + kLane * row);
  }
  carry_columns(scratch.low + kLane * limbs, limbs, out);
  carry_columns(scratch.high + kLane * limbs, limbs, out + kLane * limbs);
}

void multiply(const IfmaModulus& modulus, const std::uint64_t* x, const std::uint64_t* y, std::uint64_t* out,
              std::uint64_t* scratch_words) {
  const std::size_t limbs = modulus.limbs;
  VERIFY(limbs % kLimbsMultiple == 0 && is_aligned(scratch_words, 64));
  VERIFY(are_carried(x, 2 * limbs) && are_carried(y, 2 * limbs));
  const std::size_t half = limbs * kLane;
  const Scratch scratch(scratch_words, limbs);
  clear(scratch.low, 2 * limbs);
  add_product(x, LaneFactor{y}, limbs, scratch.low);
  finish_pair(modulus, scratch, {x, y + half}, {x + half, y}, out);
}

void square(const IfmaModulus& modulus, const std::uint64_t* x, std::uint64_t* out,
            std::uint64_t* scratch_words) {
  const std::size_t limbs = modulus.limbs;
  VERIFY(are_carried(x, 2 * limbs) && is_aligned(scratch_words, 64));
  const Scratch scratch(scratch_words, limbs);
  square_columns(x, limbs, scratch.low);
  for (std::size_t i = 0; i < limbs; ++i) {
    const Lanes limb = load(x + kLane * (limbs + i));
    store(scratch.doubled + kLane * i, _mm512_add_epi64(limb, limb));
  }
  carry_columns(scratch.doubled, limbs, scratch.doubled);
  finish_pair(modulus, scratch, {x, scratch.doubled}, {nullptr, nullptr}, out);
}

void fold(const IfmaModulus& modulus, const std::uint64_t* c, const std::uint64_t* low_factor,
          const std::uint64_t* high_factor, std::uint64_t* out, std::uint64_t* scratch_words) {
  const std::size_t limbs = modulus.limbs;
  const std::size_t half = limbs * kLane;
  VERIFY(are_carried(c, 2 * limbs) && are_carried(low_factor, 2 * limbs) &&
         are_carried(high_factor, 2 * limbs));
  VERIFY(are_reduced(modulus, low_factor) && are_reduced(modulus, high_factor));
  const Scratch scratch(scratch_words, limbs);
  clear(scratch.low, 2 * limbs);
  add_product(c, LaneFactor{low_factor}, limbs, scratch.low);
  add_product(c + half, LaneFactor{high_factor}, limbs, scratch.low);
  finish_pair(modulus, scratch, {c, low_factor + half}, {c + half, high_factor + half}, out);
}

void multiply_half(const IfmaModulus& modulus, const std::uint64_t* x, const std::uint64_t* y,
                   std::uint64_t* out, std::uint64_t* scratch_words) {
  VERIFY(are_carried(x, modulus.limbs) && are_carried(y, modulus.limbs));
  const Scratch scratch(scratch_words, modulus.limbs);
  clear(scratch.low, 2 * modulus.limbs);
  add_product(x, LaneFactor{y}, modulus.limbs, scratch.low);
  reduce_columns(modulus, scratch.low, scratch.digits);
  carry_columns(scratch.low + kLane * modulus.limbs, modulus.limbs, out);
}

void reduce(const IfmaModulus& modulus, std::uint64_t* pair, std::size_t subtractions) {
  std::uint64_t* const high = pair + modulus.limbs * kLane;
  for (std::size_t i = 0; i < subtractions; ++i) {
    // low - n is one n more in the high half.
    const __mmask8 subtracted = subtract_once(modulus.n, modulus.limbs, pair);
    store(high, _mm512_mask_add_epi64(load(high), subtracted, load(high), broadcast(1)));
    (void)subtract_once(modulus.n, modulus.limbs, high);
  }
  VERIFY(are_reduced(modulus, pair) && are_reduced(modulus, high));
}

void expand(const IfmaModulus& modulus, const std::uint64_t* pair, std::uint64_t* out,
            std::uint64_t* scratch_words) {
  const std::size_t limbs = modulus.limbs;
  const Scratch scratch(scratch_words, limbs);
  for (std::size_t i = 0; i < limbs; ++i) store(scratch.low + kLane * i, load(pair + kLane * i));
  clear(scratch.low + kLane * limbs, limbs);
  add_product(pair + kLane * limbs, SharedFactor{modulus.n}, limbs, scratch.low);
  carry_columns(scratch.low, 2 * limbs, out);
}

}  // namespace

const IfmaKernels kIfmaKernelsAvx512 = {load_numbers, store_numbers,   multiply,    square,
                                        fold,         multiply_half,   reduce,      expand,
                                        pack_entries, look_up_entries, select_entry};

}  // namespace shieldfl::paillier
