#include "rlwe/packed_digits.h"

#include "common/verify.h"

namespace shieldfl::rlwe {
namespace {

// Digits are below 2^50, or 2^50 + 2^15 with the middle of what was dropped: a sum of this many is below
// 2^63.
constexpr std::size_t kMostAdditions = (std::size_t{1} << 13) - 1;
static_assert(kMaxPrimeBits <= 50 && kMaxDroppedBits <= 16);

}  // namespace

void pack_residues(const DigitBasis& digits, const packed::BlockFormat& format,
                   std::span<std::uint64_t> residues, std::span<std::uint8_t> block) {
  VERIFY(residues.size() == format.words() && residues.size() % digits.words() == 0);
  for (std::size_t first = 0; first < residues.size(); first += digits.words()) {
    digits.from_residues(residues.subspan(first, digits.words()));
  }
  format.pack(residues, block);
}

packed::PackedSums digit_sums(const DigitBasis& digits, std::size_t polynomials, std::size_t threads) {
  const auto reduce = [digits](std::span<std::uint64_t> sums) {
    for (std::size_t first = 0; first < sums.size(); first += digits.words()) {
      digits.reduce(sums.subspan(first, digits.words()));
    }
  };
  return {digits.words() * polynomials, kMostAdditions, reduce, threads};
}

}  // namespace shieldfl::rlwe
