// Eight fields fill `bits` whole bytes. They are handled in four pairs: two neighbouring fields lie in 16
// bytes, each at most seven bits after the start of one of them, so that it fits in a 64-bit lane once its
// bytes are there. For the instruction-set files of bit_packing_kernels.h: everything here has internal
// linkage, so each of them compiles a version of its own.
//
// `Lanes` is a type of the including file:
//   Vector                          64-bit lanes, with & and |
//   kFields                         how many: two for each pair in it
//   broadcast(word), load(from), store(to, vector)
//   load_first(from, count), store_first(to, count, vector)
//                                   the first `count` lanes alone, or all; others are loaded as zero
//   load_pairs(bytes, offsets), store_pairs(bytes, offsets, vector)
//                                   16 bytes from bytes + offsets[0], and as many as there are pairs
//   shuffle_bytes(vector, order)    byte i of each pair is byte order[i] of it, or 0 for kZeroedByte
//   Shift(bits), left(vector, shift), right(vector, shift)
//                                   all lanes by as many bits
//   left_each(vector, shifts), right_each(vector, shifts)
//                                   each lane by a lane of `shifts`
//   even_lanes(vector)              with zero in the odd lanes
//   pairs_before(before, vector)    the pairs of both, from the last of `before` on
//   sum(a, b), difference(a, b)     lane by lane, modulo 2^64
//   any_negative(vector)            whether a lane's top bit is set
#pragma once

#include <cstddef>
#include <cstdint>

#include "ring/bit_packing_kernels.h"

namespace shieldfl::ring {
namespace {

constexpr std::size_t kGroupFields = 8;
constexpr std::size_t kPairs = kGroupFields / 2;
constexpr std::size_t kPairBytes = 16;
constexpr unsigned kMostBits = 57;          // and seven bits before them make 64
constexpr unsigned kFewestBitsToPack = 8;   // a byte must not hold parts of three fields
constexpr std::uint8_t kZeroedByte = 0x80;  // in the order of a shuffle

constexpr std::size_t kMostReachBytes = 6 * kMostBits / 8 + kPairBytes;
// The last groups pass through a buffer: fewer bytes than one group's reach, and that reach from the last of
// them.
constexpr std::size_t kBufferBytes = 2 * kMostReachBytes;

// Where the fields of a group lie.
struct GroupLayout {
  alignas(32) std::uint64_t bit_shifts[kGroupFields];  // of a field within its first byte
  std::size_t pair_offsets[kPairs];                    // the first byte of fields 2p and 2p + 1
  std::size_t odd_offsets[kPairs];                     // the first byte of field 2p + 1, from the pair's
  std::size_t reach;                                   // bytes that the pairs' 16 bytes cover

  explicit GroupLayout(unsigned bits) {
    for (std::size_t i = 0; i < kGroupFields; ++i) bit_shifts[i] = i * bits % 8;
    for (std::size_t p = 0; p < kPairs; ++p) {
      pair_offsets[p] = 2 * p * bits / 8;
      odd_offsets[p] = (2 * p + 1) * bits / 8 - pair_offsets[p];
    }
    reach = pair_offsets[kPairs - 1] + kPairBytes;
  }
};

// Sixteen bytes for each pair, as the words of its lanes.
union PairOrders {
  alignas(32) std::uint8_t bytes[kPairs][kPairBytes];
  std::uint64_t words[kGroupFields];
};

bool wide(unsigned bits) {
  return bits > kMostBits;
}

template <typename Lanes>
struct BitPackingPairs {
  using Vector = typename Lanes::Vector;
  static constexpr std::size_t kFields = Lanes::kFields;
  static constexpr std::size_t kVectors = kGroupFields / kFields;  // in a group

  class GroupUnpacker {
   public:
    GroupUnpacker(const GroupLayout& layout, unsigned bits, unsigned dropped_bits)
        : field_mask_(Lanes::broadcast((std::uint64_t{1} << bits) - 1)),
          middle_(Lanes::broadcast((std::uint64_t{1} << dropped_bits) >> 1)),
          dropped_bits_(dropped_bits) {
      PairOrders windows;
      for (std::size_t p = 0; p < kPairs; ++p) {
        pair_offsets_[p] = layout.pair_offsets[p];
        for (std::size_t k = 0; k < 8; ++k) {
          windows.bytes[p][k] = static_cast<std::uint8_t>(k);
          windows.bytes[p][8 + k] = static_cast<std::uint8_t>(layout.odd_offsets[p] + k);
        }
      }
      for (std::size_t v = 0; v < kVectors; ++v) {
        windows_[v] = Lanes::load(windows.words + kFields * v);
        bit_shifts_[v] = Lanes::load(layout.bit_shifts + kFields * v);
      }
    }

    // Vector v of the group's residues.
    Vector residues(const std::uint8_t* group, std::size_t v) const {
      const Vector pairs = Lanes::load_pairs(group, pair_offsets_ + kFields / 2 * v);
      const Vector shifted = Lanes::right_each(Lanes::shuffle_bytes(pairs, windows_[v]), bit_shifts_[v]);
      return Lanes::left(shifted & field_mask_, dropped_bits_) | middle_;
    }

   private:
    Vector windows_[kVectors];
    Vector bit_shifts_[kVectors];
    Vector field_mask_;
    Vector middle_;
    typename Lanes::Shift dropped_bits_;
    std::size_t pair_offsets_[kPairs];
  };

  struct AllLanes {
    Vector read(const std::uint64_t* from) const { return Lanes::load(from); }
    void write(std::uint64_t* to, Vector value) const { Lanes::store(to, value); }
  };

  // Lanes that lie past the end are neither read nor written.
  struct FirstLanes {
    std::size_t count;

    Vector read(const std::uint64_t* from) const { return Lanes::load_first(from, count); }
    void write(std::uint64_t* to, Vector value) const { Lanes::store_first(to, count, value); }
  };

  // Calls use(i, residues from i on, lanes) for every i that begins a vector; lanes past the last residue are
  // fields of zero.
  template <typename Use>
  static void for_each_vector(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                              Use use) {
    const GroupLayout layout(bits);
    const GroupUnpacker unpacker(layout, bits, dropped_bits);
    std::size_t bytes = (count * bits + 7) / 8;
    std::size_t i = 0;
    for (; i + kGroupFields <= count && bytes >= layout.reach; i += kGroupFields, in += bits, bytes -= bits) {
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) use(i + kFields * v, unpacker.residues(in, v), AllLanes());
    }
    if (i == count) return;
    std::uint8_t rest[kBufferBytes] = {};
    for (std::size_t k = 0; k < bytes; ++k) rest[k] = in[k];
    if (count * bits % 8 != 0) rest[bytes - 1] &= static_cast<std::uint8_t>((1U << (count * bits % 8)) - 1);
    for (const std::uint8_t* group = rest; i < count; i += kGroupFields, group += bits) {
      const std::size_t left = count - i;
      for (std::size_t v = 0; v < kVectors && kFields * v < left; ++v) {
        use(i + kFields * v, unpacker.residues(group, v), FirstLanes{left - kFields * v});
      }
    }
  }

  static void unpack(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                     std::uint64_t* out) {
    if (wide(bits)) return kBitPackingKernelsScalar.unpack(in, count, bits, dropped_bits, out);
    for_each_vector(in, count, bits, dropped_bits,
                    [=](std::size_t i, Vector residues, auto lanes) { lanes.write(out + i, residues); });
  }

  static void subtract(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                       std::uint64_t* sums) {
    if (wide(bits)) return kBitPackingKernelsScalar.subtract(in, count, bits, dropped_bits, sums);
    for_each_vector(in, count, bits, dropped_bits, [=](std::size_t i, Vector residues, auto lanes) {
      lanes.write(sums + i, Lanes::difference(lanes.read(sums + i), residues));
    });
  }

  // Collects the sign of largest - residue over all residues.
  class RangeCheck {
   public:
    explicit RangeCheck(std::uint64_t largest) : largest_(Lanes::broadcast(largest)) {}
    void add(Vector residues) { signs_ = signs_ | Lanes::difference(largest_, residues); }
    bool passed() const { return !Lanes::any_negative(signs_); }

   private:
    Vector largest_;
    Vector signs_ = Lanes::broadcast(0);
  };

  static bool accumulate(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                         std::uint64_t largest_field, std::uint64_t* sums) {
    if (wide(bits))
      return kBitPackingKernelsScalar.accumulate(in, count, bits, dropped_bits, largest_field, sums);
    const std::uint64_t middle = (std::uint64_t{1} << dropped_bits) >> 1;
    RangeCheck check((largest_field << dropped_bits) | middle);
    for_each_vector(in, count, bits, dropped_bits, [=, &check](std::size_t i, Vector residues, auto lanes) {
      check.add(residues);
      lanes.write(sums + i, Lanes::sum(lanes.read(sums + i), residues));
    });
    return check.passed();
  }

  static bool in_range(const std::uint8_t* in, std::size_t count, unsigned bits,
                       std::uint64_t largest_field) {
    if (wide(bits)) return kBitPackingKernelsScalar.in_range(in, count, bits, largest_field);
    RangeCheck check(largest_field);
    for_each_vector(in, count, bits, 0, [&check](std::size_t, Vector fields, auto) { check.add(fields); });
    return check.passed();
  }

  class GroupPacker {
   public:
    GroupPacker(const GroupLayout& layout, unsigned dropped_bits) : dropped_bits_(dropped_bits) {
      PairOrders odd;
      PairOrders shared;
      for (std::size_t p = 0; p < kPairs; ++p) {
        pair_offsets_[p] = layout.pair_offsets[p];
        for (std::size_t k = 0; k < kPairBytes; ++k) odd.bytes[p][k] = shared.bytes[p][k] = kZeroedByte;
        for (std::size_t k = 0; k < 8; ++k) {
          odd.bytes[p][layout.odd_offsets[p] + k] = static_cast<std::uint8_t>(8 + k);
        }
        if (p > 0) {
          shared.bytes[p][0] = static_cast<std::uint8_t>(layout.pair_offsets[p] - layout.pair_offsets[p - 1]);
        }
      }
      for (std::size_t v = 0; v < kVectors; ++v) {
        bit_shifts_[v] = Lanes::load(layout.bit_shifts + kFields * v);
        odd_bytes_[v] = Lanes::load(odd.words + kFields * v);
        shared_bytes_[v] = Lanes::load(shared.words + kFields * v);
      }
    }

    // Writes layout.reach bytes, of which the group's own come first and zeros follow.
    void pack(const std::uint64_t* in, std::uint8_t* group) const {
      Vector before = Lanes::broadcast(0);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        const Vector fields = Lanes::right(Lanes::load(in + kFields * v), dropped_bits_);
        const Vector shifted = Lanes::left_each(fields, bit_shifts_[v]);
        const Vector pairs = Lanes::even_lanes(shifted) | Lanes::shuffle_bytes(shifted, odd_bytes_[v]);
        // The last bits of a pair may share a byte with the first bits of the next.
        const Vector shared = Lanes::shuffle_bytes(Lanes::pairs_before(before, pairs), shared_bytes_[v]);
        Lanes::store_pairs(group, pair_offsets_ + kFields / 2 * v, pairs | shared);
        before = pairs;
      }
    }

   private:
    Vector bit_shifts_[kVectors];
    Vector odd_bytes_[kVectors];
    Vector shared_bytes_[kVectors];
    typename Lanes::Shift dropped_bits_;
    std::size_t pair_offsets_[kPairs];
  };

  static void pack(const std::uint64_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                   std::uint8_t* out) {
    if (wide(bits) || bits < kFewestBitsToPack) {
      return kBitPackingKernelsScalar.pack(in, count, bits, dropped_bits, out);
    }
    const GroupLayout layout(bits);
    const GroupPacker packer(layout, dropped_bits);
    std::size_t bytes = (count * bits + 7) / 8;
    std::size_t i = 0;
    for (; i + kGroupFields <= count && bytes >= layout.reach;
         i += kGroupFields, out += bits, bytes -= bits) {
      packer.pack(in + i, out);
    }
    std::uint8_t rest[kBufferBytes];
    std::uint8_t* group = rest;
    for (; i + kGroupFields <= count; i += kGroupFields, group += bits) packer.pack(in + i, group);
    if (i < count) {
      std::uint64_t last[kGroupFields] = {};
      for (std::size_t k = 0; i + k < count; ++k) last[k] = in[i + k];
      packer.pack(last, group);
    }
    for (std::size_t k = 0; k < bytes; ++k) out[k] = rest[k];
  }

  static constexpr BitPackingKernels kernels() { return {pack, unpack, accumulate, subtract, in_range}; }
};

}  // namespace
}  // namespace shieldfl::ring
