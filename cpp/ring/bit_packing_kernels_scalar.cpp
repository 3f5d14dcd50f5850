#include <algorithm>
#include <cstring>

#include "ring/bit_packing_kernels.h"

namespace shieldfl::ring {
namespace {

void pack(const std::uint64_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
          std::uint8_t* out) {
  std::uint64_t word = 0;
  unsigned filled_bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t field = in[i] >> dropped_bits;
    word |= field << filled_bits;
    filled_bits += bits;
    if (filled_bits >= 64) {
      std::memcpy(out, &word, sizeof word);
      out += sizeof word;
      filled_bits -= 64;
      word = field >> (bits - filled_bits);
    }
  }
  if (filled_bits > 0) std::memcpy(out, &word, (filled_bits + 7) / 8);
}

// Calls use(i, field i) for every field, in order.
template <typename Use>
void for_each_field(const std::uint8_t* in, std::size_t count, unsigned bits, Use use) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  std::size_t bytes = (count * bits + 7) / 8;
  std::uint64_t word = 0;
  unsigned left_bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t field = word;
    if (left_bits >= bits) {
      word >>= bits;
      left_bits -= bits;
    } else {
      std::uint64_t next = 0;
      const std::size_t taken = std::min(bytes, sizeof next);
      if (taken == sizeof next) {
        std::memcpy(&next, in, sizeof next);
      } else {
        std::memcpy(&next, in, taken);
      }
      in += taken;
      bytes -= taken;
      field |= next << left_bits;
      word = next >> (bits - left_bits);
      left_bits += 64 - bits;
    }
    use(i, field & mask);
  }
}

// Calls use(i, residue i), each residue in the middle of those that pack to its field.
template <typename Use>
void for_each_residue(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                      Use use) {
  const std::uint64_t middle = (std::uint64_t{1} << dropped_bits) >> 1;
  for_each_field(in, count, bits,
                 [=](std::size_t i, std::uint64_t field) { use(i, (field << dropped_bits) + middle); });
}

void unpack(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
            std::uint64_t* out) {
  for_each_residue(in, count, bits, dropped_bits,
                   [=](std::size_t i, std::uint64_t residue) { out[i] = residue; });
}

bool accumulate(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                std::uint64_t largest_field, std::uint64_t* sums) {
  const std::uint64_t middle = (std::uint64_t{1} << dropped_bits) >> 1;
  std::uint64_t largest = 0;
  for_each_field(in, count, bits, [=, &largest](std::size_t i, std::uint64_t field) {
    largest = std::max(largest, field);
    sums[i] += (field << dropped_bits) + middle;
  });
  return largest <= largest_field;
}

void subtract(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
              std::uint64_t* sums) {
  for_each_residue(in, count, bits, dropped_bits,
                   [=](std::size_t i, std::uint64_t residue) { sums[i] -= residue; });
}

bool in_range(const std::uint8_t* in, std::size_t count, unsigned bits, std::uint64_t largest_field) {
  std::uint64_t largest = 0;
  for_each_field(in, count, bits,
                 [&largest](std::size_t, std::uint64_t field) { largest = std::max(largest, field); });
  return largest <= largest_field;
}

}  // namespace

const BitPackingKernels kBitPackingKernelsScalar = {pack, unpack, accumulate, subtract, in_range};

}  // namespace shieldfl::ring
