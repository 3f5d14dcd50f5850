#include <immintrin.h>

#include "mask/gather_algorithm.h"

namespace shieldfl::mask {
namespace {

struct Avx2Steps {
  template <typename T>
  static std::size_t whole_word(const T* dense, std::uint64_t word, T* out) {
    const auto count = static_cast<std::size_t>(_mm_popcnt_u64(word));
    if (word == ~std::uint64_t{0}) {
      __builtin_memcpy(out, dense, 64 * sizeof(T));
      return 64;
    }
    std::size_t written = 0;
    do {
      // Eight whether there are as many or not: that costs less than a branch that is guessed wrong. The
      // highest bit stands in where none is left.
      for (std::size_t i = 0; i < 8; ++i) {
        out[written++] = dense[_tzcnt_u64(word | std::uint64_t{1} << 63)];
        word = _blsr_u64(word);
      }
    } while (written < count);
    return count;
  }
};

}  // namespace

const GatherKernels kGatherKernelsAvx2 = gather_kernels_over<Avx2Steps>();

}  // namespace shieldfl::mask
