// The walk over the words that every gather kernel makes.
//
// `Steps` is a type of the including file's own, so that no two files share an instantiation: the linker
// could otherwise keep the one that needs the newer processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mask/gather_kernels.h"

namespace shieldfl::mask {

template <typename Steps>
struct GatherAlgorithm {
  // Steps::whole_word(dense, word, out) writes the values at the set bits of one word and returns how many
  // there are. It may write any 64 entries of `out`, and read any of the word's 64 values.
  template <typename T>
  static void gather(const T* dense, const std::uint64_t* words, std::uint64_t first, T* out,
                     std::size_t count) {
    T* const end = out + count;
    std::uint64_t word = first;
    // With 64 values or more to come a word is either full or not the last one, so that all of its positions
    // are there to be read.
    for (; end - out >= 64; word = *++words, dense += 64) {
      if (word != 0) out += Steps::whole_word(dense, word, out);
      if (out == end) return;
    }
    for (; out != end; word = *++words, dense += 64) {
      for (; word != 0; word &= word - 1) {
        *out++ = dense[__builtin_ctzll(word)];
        if (out == end) return;
      }
    }
  }
};

template <typename Steps>
constexpr GatherKernels gather_kernels_over() {
  return {GatherAlgorithm<Steps>::template gather<float>, GatherAlgorithm<Steps>::template gather<double>};
}

}  // namespace shieldfl::mask
