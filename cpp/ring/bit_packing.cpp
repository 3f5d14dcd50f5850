#include "ring/bit_packing.h"

#include "common/cpu_features.h"
#include "common/verify.h"
#include "ring/bit_packing_kernels.h"

namespace shieldfl::ring {
namespace {

const BitPackingKernels& kernels() {
  return bit_packing_kernels(instruction_set());
}

bool padding_is_zero(std::span<const std::uint8_t> in, unsigned bits, std::size_t count) {
  const auto used_bits = static_cast<unsigned>(count * bits % 8);
  return used_bits == 0 || in.back() >> used_bits == 0;
}

std::uint64_t largest_field(PackedWidth width, std::uint64_t modulus) {
  VERIFY(1 < modulus && modulus <= std::uint64_t{1} << 61);
  return (modulus - 1) >> width.dropped_bits;
}

// What every kernel relies on.
[[maybe_unused]] bool fits(PackedWidth width, std::size_t count, std::size_t bytes) {
  return width.bits >= 1 && width.dropped_bits <= 20 && width.bits + width.dropped_bits <= 61 &&
         bytes == packed_bytes(count, width.bits);
}

}  // namespace

void pack_residues(std::span<const std::uint64_t> in, PackedWidth width, std::span<std::uint8_t> out) {
  VERIFY(fits(width, in.size(), out.size()));
  VERIFY(all_below(in.data(), in.size(), std::uint64_t{1} << (width.bits + width.dropped_bits)));
  kernels().pack(in.data(), in.size(), width.bits, width.dropped_bits, out.data());
}

void unpack_residues(std::span<const std::uint8_t> in, PackedWidth width, std::span<std::uint64_t> out) {
  VERIFY(fits(width, out.size(), in.size()));
  kernels().unpack(in.data(), out.size(), width.bits, width.dropped_bits, out.data());
}

bool accumulate_residues(std::span<const std::uint8_t> in, PackedWidth width, std::uint64_t modulus,
                         std::span<std::uint64_t> sums) {
  VERIFY(fits(width, sums.size(), in.size()));
  const bool in_range = kernels().accumulate(in.data(), sums.size(), width.bits, width.dropped_bits,
                                             largest_field(width, modulus), sums.data());
  return in_range && padding_is_zero(in, width.bits, sums.size());
}

void subtract_residues(std::span<const std::uint8_t> in, PackedWidth width, std::span<std::uint64_t> sums) {
  VERIFY(fits(width, sums.size(), in.size()));
  kernels().subtract(in.data(), sums.size(), width.bits, width.dropped_bits, sums.data());
}

bool residues_in_range(std::span<const std::uint8_t> in, PackedWidth width, std::uint64_t modulus,
                       std::size_t count) {
  VERIFY(fits(width, count, in.size()));
  return kernels().in_range(in.data(), count, width.bits, largest_field(width, modulus)) &&
         padding_is_zero(in, width.bits, count);
}

}  // namespace shieldfl::ring
