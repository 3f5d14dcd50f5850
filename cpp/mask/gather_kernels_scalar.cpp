#include "mask/gather_algorithm.h"
#include "mask/words.h"

namespace shieldfl::mask {
namespace {

struct ScalarSteps {
  template <typename T>
  static std::size_t whole_word(const T* dense, std::uint64_t word, T* out) {
    const std::size_t count = count_bits(word);
    if (word == kAllOnes) {
      __builtin_memcpy(out, dense, 64 * sizeof(T));
      return 64;
    }
    std::size_t written = 0;
    do {
      // Eight whether there are as many or not: that costs less than a branch that is guessed wrong. The
      // highest bit stands in where none is left.
      for (std::size_t i = 0; i < 8; ++i) {
        out[written++] = dense[std::countr_zero(word | std::uint64_t{1} << 63)];
        word &= word - 1;
      }
    } while (written < count);
    return count;
  }
};

}  // namespace

const GatherKernels kGatherKernelsScalar = gather_kernels_over<ScalarSteps>();

}  // namespace shieldfl::mask
