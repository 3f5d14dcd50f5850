#include <cstring>

#include "mask/word_kernels.h"
#include "mask/words.h"

namespace shieldfl::mask {
namespace {

std::uint64_t count(const std::uint64_t* from, std::size_t words) {
  return count_bits({from, words});
}

std::uint64_t from_bytes(const std::uint8_t* bytes, std::uint64_t* out, std::size_t words) {
  std::uint64_t set = 0;
  for (std::size_t w = 0; w < words; ++w) {
    std::uint64_t word = 0;
    for (std::size_t part = 0; part < 8; ++part) {
      std::uint64_t eight_bytes;
      std::memcpy(&eight_bytes, bytes + w * kWordBits + 8 * part, sizeof eight_bytes);
      word |= bytes_to_bits(eight_bytes) << (8 * part);
    }
    out[w] = word;
    set += count_bits(word);
  }
  return set;
}

void to_bytes(const std::uint64_t* from, std::uint8_t* bytes, std::size_t words) {
  for (std::size_t w = 0; w < words; ++w) {
    for (std::size_t part = 0; part < 8; ++part) {
      const std::uint64_t eight_bytes = bits_to_bytes((from[w] >> (8 * part)) & 0xff);
      std::memcpy(bytes + w * kWordBits + 8 * part, &eight_bytes, sizeof eight_bytes);
    }
  }
}

}  // namespace

const WordKernels kWordKernelsScalar = {count, from_bytes, to_bytes};

}  // namespace shieldfl::mask
