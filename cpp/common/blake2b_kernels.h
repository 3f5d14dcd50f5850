// BLAKE2b (RFC 7693) of many leaves of a tree, several at a time. Trees of whole frames are in digest.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace shieldfl {

enum class InstructionSet : std::uint8_t;

inline constexpr std::size_t kBlake2bBlockBytes = 128;

// The eight words of a parameter block, as the specification of BLAKE2 lays it out (section 2.5). Word 1 is
// the number of the node.
using Blake2bParameters = std::array<std::uint64_t, 8>;

struct Blake2bKernels {
  // Writes the first 32 bytes of the state of each of `leaves` leaves, which lie one after the other,
  // `leaf_bytes` long each: a multiple of kBlake2bBlockBytes, and not 0. Leaf i is node parameters[1] + i,
  // and none is the last node of its layer. The words are Blake2bParameters. Nothing need be aligned. For
  // public data.
  void (*leaves)(const std::uint64_t* parameters, const std::uint8_t* data, std::size_t leaf_bytes,
                 std::size_t leaves, std::uint8_t* digests);
};

extern const Blake2bKernels kBlake2bKernelsScalar;
extern const Blake2bKernels kBlake2bKernelsAvx2;    // on x86-64 alone
extern const Blake2bKernels kBlake2bKernelsAvx512;  // on x86-64 alone

// `set` is at most best_instruction_set().
const Blake2bKernels& blake2b_kernels(InstructionSet set);

}  // namespace shieldfl
