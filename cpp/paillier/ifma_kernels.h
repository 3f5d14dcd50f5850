// The inner loops of Paillier in AVX-512 IFMA; what they are put together to is in ifma_engine.h.
//
// A *group* is eight numbers side by side. Its *lanes* are limbs of 52 bits, lowest first, each a vector of
// eight words: word 8 * i + k is limb i of number k. A pair low + high * n is 2 * limbs of them, low and then
// high. All lanes and scratch are aligned to 64 bytes. With R = 2^(52 * limbs), R > 32 n. Halves come in
// below 1.5 n, or below 2.5 n where the other factor is below n, and come out below 1.2 n unless said
// otherwise, congruent to what they should be.
//
// Constant-time in everything but sizes. Registers aside, whatever is left of the numbers is in the caller's
// scratch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl::paillier {

inline constexpr std::size_t kGroup = 8;  // numbers
inline constexpr std::size_t kLimbBits = 52;
inline constexpr std::size_t kLimbsMultiple = 10;  // limbs of n are padded to a multiple
inline constexpr std::size_t kTableBlock = 8;      // groups that look_up serves at once
inline constexpr std::size_t kTableBlockNumbers = kTableBlock * kGroup;
inline constexpr std::size_t kLimbBytes = 7;      // of a limb in a table
inline constexpr std::size_t kSliceEntries = 64;  // of a table's row, in one vector
inline constexpr std::size_t kMaxSlices = 4;

struct IfmaModulus {
  std::size_t limbs;
  const std::uint64_t* n;           // `limbs` limbs
  const std::uint64_t* complement;  // (1 - R) mod n, and 2^52 - 1 more in each limb
  std::uint64_t quotient_factor;    // -1 / n modulo 2^52
};

// Scratch of any function that takes some: kScratchHalves * limbs vectors.
inline constexpr std::size_t kScratchHalves = 6;

struct IfmaKernels {
  // `count` <= 8 numbers of `words` 64-bit words, `stride` words from one to the next, as `limbs` limbs, and
  // back. Lanes of absent numbers are zero.
  void (*load)(const std::uint64_t* numbers, std::size_t count, std::size_t stride, std::size_t words,
               std::size_t limbs, std::uint64_t* lanes, std::uint64_t* scratch);
  void (*store)(const std::uint64_t* lanes, std::size_t limbs, std::size_t count, std::size_t stride,
                std::size_t words, std::uint64_t* numbers);

  // out = x * y / R for pairs; out may be x or y.
  void (*multiply)(const IfmaModulus& modulus, const std::uint64_t* x, const std::uint64_t* y,
                   std::uint64_t* out, std::uint64_t* scratch);
  // out = x * x / R; out may be x.
  void (*square)(const IfmaModulus& modulus, const std::uint64_t* x, std::uint64_t* out,
                 std::uint64_t* scratch);
  // out = (c mod R) * low_factor / R + floor(c / R) * high_factor / R for numbers c < n^2 of 2 * limbs limbs:
  // with powers of R as factors, c as a pair. Factors are below n, what comes out is below 2.5 n.
  void (*fold)(const IfmaModulus& modulus, const std::uint64_t* c, const std::uint64_t* low_factor,
               const std::uint64_t* high_factor, std::uint64_t* out, std::uint64_t* scratch);
  // out = x * y / R modulo n for halves; out may be x or y.
  void (*multiply_half)(const IfmaModulus& modulus, const std::uint64_t* x, const std::uint64_t* y,
                        std::uint64_t* out, std::uint64_t* scratch);
  // Makes both halves of a pair the least ones, of halves below (subtractions + 0.5) * n.
  void (*reduce)(const IfmaModulus& modulus, std::uint64_t* pair, std::size_t subtractions);
  // out = low + high * n, 2 * limbs limbs; out may be the pair.
  void (*expand)(const IfmaModulus& modulus, const std::uint64_t* pair, std::uint64_t* out,
                 std::uint64_t* scratch);

  // A row of a table holds 64 * slices pairs: for each of their 2 * limbs limbs and each of its seven bytes,
  // that byte of all entries. `pack` writes one number of each of 64 groups, as entries 64 * slice and on.
  void (*pack)(const std::uint64_t* groups, std::size_t limbs, std::size_t number, std::size_t slice,
               std::size_t slices, std::uint8_t* row);
  // The entries of 64 numbers, as eight groups; slices is 1, 2 or 4. Number k of group g has its entry's
  // index modulo 64 at low_digits[16 * (k / 2) + 2 * g + k % 2], as the registers' bytes are transposed in
  // this order, and its index / 64 in high_digits. All of the row is read.
  void (*look_up)(const std::uint8_t* row, std::size_t limbs, std::size_t slices,
                  const std::uint8_t* low_digits, const std::uint8_t* high_digits, std::uint64_t* groups);
  // out = entry `digit` of a table of `entries` groups of pairs. All of them are read.
  void (*select)(const std::uint64_t* table, std::size_t limbs, std::size_t entries, std::uint64_t digit,
                 std::uint64_t* out);
};

extern const IfmaKernels kIfmaKernelsAvx512;

// Null where this build or this processor has none.
const IfmaKernels* ifma_kernels();

}  // namespace shieldfl::paillier
