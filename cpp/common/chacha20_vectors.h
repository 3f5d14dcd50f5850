// ChaCha20 on vectors of 32-bit words, for the instruction-set files of chacha20_kernels.h: everything here
// has internal linkage, so each of them compiles a version of its own.
//
// `Isa` is a type of the including file:
//   Words                          a vector of 4 kLanes words with +, ^ and +=; lane L is words 4 L to 4 L +
//   3 kLanes                         the number of 128-bit lanes broadcast(word), broadcast_row(four words)
//   numbers(), lane_numbers()      word i is i; the first word of lane L is L and the others are 0
//   rotate<bits>(x)                each word to the left
//   turn_lanes<by>(x)              word i of each lane is word (i + by) mod 4 of it
//   low_words, high_words, low_pairs, high_pairs(x, y)
//                                  within each lane: x0 y0 x1 y1, x2 y2 x3 y3, x0 x1 y0 y1, x2 x3 y2 y3
//   store_blocks(a, b, c, d, count, stride, out)
//                                  lane L of a, b, c and d, one behind the other, to out + stride L, L <
//                                  count
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/chacha20_kernels.h"

namespace shieldfl {
namespace {

template <typename Isa, typename Words>
inline __attribute__((always_inline)) void quarter_round(Words& a, Words& b, Words& c, Words& d) {
  a += b, d = Isa::template rotate<16>(d ^ a);
  c += d, b = Isa::template rotate<12>(b ^ c);
  a += b, d = Isa::template rotate<8>(d ^ a);
  c += d, b = Isa::template rotate<7>(b ^ c);
}

// 4 kLanes blocks, one a word of the vectors, which fills all the ports; the counters are `counter` and on.
template <typename Isa>
inline void blocks_by_words(const std::uint32_t* state, std::uint32_t counter, std::uint8_t* out) {
  using Words = typename Isa::Words;
  const Words counters = Isa::broadcast(counter) + Isa::numbers();
  Words x[16];
  for (std::size_t i = 0; i < 16; ++i) x[i] = i == 12 ? counters : Isa::broadcast(state[i]);
  for (int round = 0; round < 10; ++round) {
    quarter_round<Isa>(x[0], x[4], x[8], x[12]);
    quarter_round<Isa>(x[1], x[5], x[9], x[13]);
    quarter_round<Isa>(x[2], x[6], x[10], x[14]);
    quarter_round<Isa>(x[3], x[7], x[11], x[15]);
    quarter_round<Isa>(x[0], x[5], x[10], x[15]);
    quarter_round<Isa>(x[1], x[6], x[11], x[12]);
    quarter_round<Isa>(x[2], x[7], x[8], x[13]);
    quarter_round<Isa>(x[3], x[4], x[9], x[14]);
  }
  for (std::size_t i = 0; i < 16; ++i) x[i] += i == 12 ? counters : Isa::broadcast(state[i]);
  // Four by four words within the lanes: lane L of x[4 i + k] becomes words 4 i to 4 i + 3 of block 4 L + k.
  for (std::size_t i = 0; i < 16; i += 4) {
    const Words even_low = Isa::low_words(x[i], x[i + 1]);
    const Words even_high = Isa::high_words(x[i], x[i + 1]);
    const Words odd_low = Isa::low_words(x[i + 2], x[i + 3]);
    const Words odd_high = Isa::high_words(x[i + 2], x[i + 3]);
    x[i] = Isa::low_pairs(even_low, odd_low);
    x[i + 1] = Isa::high_pairs(even_low, odd_low);
    x[i + 2] = Isa::low_pairs(even_high, odd_high);
    x[i + 3] = Isa::high_pairs(even_high, odd_high);
  }
  for (std::size_t k = 0; k < 4; ++k) {
    Isa::store_blocks(x[k], x[4 + k], x[8 + k], x[12 + k], Isa::kLanes, 4 * kChaCha20BlockBytes,
                      out + kChaCha20BlockBytes * k);
  }
}

// At most kGroups kLanes blocks, one a lane of the vectors, whose four hold the state's rows: for what is too
// few to fill blocks_by_words. Writes `blocks` of them.
template <typename Isa, std::size_t kGroups>
inline void blocks_by_lanes(const std::uint32_t* state, std::uint32_t counter, std::size_t blocks,
                            std::uint8_t* out) {
  using Words = typename Isa::Words;
  Words rows[kGroups][4];
  Words x[kGroups][4];
  for (std::size_t group = 0; group < kGroups; ++group) {
    const std::uint32_t first = counter + static_cast<std::uint32_t>(group * Isa::kLanes);
    const std::uint32_t last_row[4] = {first, state[13], state[14], state[15]};
    for (std::size_t i = 0; i < 4; ++i)
      rows[group][i] = Isa::broadcast_row(i == 3 ? last_row : state + 4 * i);
    rows[group][3] += Isa::lane_numbers();
    for (std::size_t i = 0; i < 4; ++i) x[group][i] = rows[group][i];
  }
  for (int round = 0; round < 10; ++round) {
    for (auto& [a, b, c, d] : x) quarter_round<Isa>(a, b, c, d);
    for (auto& [a, b, c, d] : x) {
      b = Isa::template turn_lanes<1>(b);
      c = Isa::template turn_lanes<2>(c);
      d = Isa::template turn_lanes<3>(d);
    }
    for (auto& [a, b, c, d] : x) quarter_round<Isa>(a, b, c, d);
    for (auto& [a, b, c, d] : x) {
      b = Isa::template turn_lanes<3>(b);
      c = Isa::template turn_lanes<2>(c);
      d = Isa::template turn_lanes<1>(d);
    }
  }
  for (std::size_t group = 0; group < kGroups; ++group) {
    const std::size_t first = group * Isa::kLanes;
    if (first >= blocks) break;
    const std::size_t count = blocks - first < Isa::kLanes ? blocks - first : Isa::kLanes;
    for (std::size_t i = 0; i < 4; ++i) x[group][i] += rows[group][i];
    Isa::store_blocks(x[group][0], x[group][1], x[group][2], x[group][3], count, kChaCha20BlockBytes,
                      out + kChaCha20BlockBytes * first);
  }
}

template <typename Isa>
inline void write_blocks(const std::uint32_t* state, std::size_t blocks, std::uint8_t* out) {
  constexpr std::size_t kAtOnce = 4 * Isa::kLanes;
  std::uint32_t counter = state[12];
  while (blocks > 0) {
    std::size_t written = kAtOnce;
    if (blocks >= kAtOnce) {
      blocks_by_words<Isa>(state, counter, out);
    } else if (blocks > Isa::kLanes) {
      written = blocks < 2 * Isa::kLanes ? blocks : 2 * Isa::kLanes;
      blocks_by_lanes<Isa, 2>(state, counter, written, out);
    } else {
      written = blocks;
      blocks_by_lanes<Isa, 1>(state, counter, written, out);
    }
    counter += static_cast<std::uint32_t>(written);
    blocks -= written;
    out += kChaCha20BlockBytes * written;
  }
}

}  // namespace
}  // namespace shieldfl
