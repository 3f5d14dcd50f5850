#include "common/blake2b_lanes.h"

namespace shieldfl {
namespace {

struct Scalar {
  using Vector = std::uint64_t;
  static constexpr std::size_t kLanes = 1;

  static Vector broadcast(std::uint64_t word) { return word; }
  template <int bits>
  static Vector rotate_right(Vector x) {
    return x >> bits | x << (64 - bits);
  }
  static void load_block(const std::uint8_t* const* places, Vector* words) {
    __builtin_memcpy(words, places[0], kBlake2bBlockBytes);
  }
};

}  // namespace

const Blake2bKernels kBlake2bKernelsScalar = {hash_leaves<Scalar>};

}  // namespace shieldfl
