#include "ring/bit_packing.h"

#include "common/cpu_features.h"
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
  return (modulus - 1) >> width.dropped_bits;
}

}  // namespace

void pack_residues(std::span<const std::uint64_t> in, PackedWidth width, std::span<std::uint8_t> out) {
  kernels().pack(in.data(), in.size(), width.bits, width.dropped_bits, out.data());
}

void unpack_residues(std::span<const std::uint8_t> in, PackedWidth width, std::span<std::uint64_t> out) {
  kernels().unpack(in.data(), out.size(), width.bits, width.dropped_bits, out.data());
}

bool accumulate_residues(std::span<const std::uint8_t> in, PackedWidth width, std::uint64_t modulus,
                         std::span<std::uint64_t> sums) {
  const bool in_range = kernels().accumulate(in.data(), sums.size(), width.bits, width.dropped_bits,
                                             largest_field(width, modulus), sums.data());
  return in_range && padding_is_zero(in, width.bits, sums.size());
}

void subtract_residues(std::span<const std::uint8_t> in, PackedWidth width, std::span<std::uint64_t> sums) {
  kernels().subtract(in.data(), sums.size(), width.bits, width.dropped_bits, sums.data());
}

bool residues_in_range(std::span<const std::uint8_t> in, PackedWidth width, std::uint64_t modulus,
                       std::size_t count) {
  return kernels().in_range(in.data(), count, width.bits, largest_field(width, modulus)) &&
         padding_is_zero(in, width.bits, count);
}

}  // namespace shieldfl::ring
