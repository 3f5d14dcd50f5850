// Eight fields fill `bits` whole bytes. They are handled in four pairs: two neighbouring fields lie in 16
// bytes, each at most seven bits after the start of one of them, so that it fits in a 64-bit lane once its
// bytes are there.
#include <immintrin.h>

#include "ring/bit_packing_kernels.h"

namespace shieldfl::ring {
namespace {

constexpr std::size_t kGroupFields = 8;
constexpr std::size_t kPairBytes = 16;
constexpr unsigned kMostBits = 57;         // and seven bits before them make 64
constexpr unsigned kFewestBitsToPack = 8;  // a byte must not hold parts of three fields

constexpr std::size_t kMostReachBytes = 6 * kMostBits / 8 + kPairBytes;
// The last groups pass through a buffer: fewer bytes than one group's reach, and that reach from the last of
// them.
constexpr std::size_t kBufferBytes = 2 * kMostReachBytes;

constexpr std::uint64_t kEachByte = 0x0101010101010101;
constexpr std::uint64_t kAscendingBytes = 0x0706050403020100;

// Where the fields of a group lie.
struct GroupLayout {
  alignas(32) std::uint64_t bit_shifts[kGroupFields];  // of a field within its first byte
  std::size_t pair_offsets[4];                         // the first byte of fields 2p and 2p + 1
  std::size_t odd_offsets[4];                          // the first byte of field 2p + 1, from the pair's
  std::size_t reach;                                   // bytes that the pairs' 16 bytes cover

  explicit GroupLayout(unsigned bits) {
    for (std::size_t i = 0; i < kGroupFields; ++i) bit_shifts[i] = i * bits % 8;
    for (std::size_t p = 0; p < 4; ++p) {
      pair_offsets[p] = 2 * p * bits / 8;
      odd_offsets[p] = (2 * p + 1) * bits / 8 - pair_offsets[p];
    }
    reach = pair_offsets[3] + kPairBytes;
  }
};

__m256i load(const std::uint64_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

__m256i broadcast(std::uint64_t value) {
  return _mm256_set1_epi64x(static_cast<long long>(value));
}

__m256i two_halves(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  return _mm256_setr_epi64x(static_cast<long long>(a), static_cast<long long>(b), static_cast<long long>(c),
                            static_cast<long long>(d));
}

class GroupUnpacker {
 public:
  GroupUnpacker(const GroupLayout& layout, unsigned bits, unsigned dropped_bits)
      : field_mask_(broadcast((std::uint64_t{1} << bits) - 1)),
        middle_(broadcast((std::uint64_t{1} << dropped_bits) >> 1)),
        dropped_bits_(_mm_cvtsi32_si128(static_cast<int>(dropped_bits))) {
    for (std::size_t half = 0; half < 2; ++half) {
      first_pair_[half] = layout.pair_offsets[2 * half];
      second_pair_[half] = layout.pair_offsets[2 * half + 1];
      windows_[half] =
          two_halves(kAscendingBytes, kAscendingBytes + layout.odd_offsets[2 * half] * kEachByte,
                     kAscendingBytes, kAscendingBytes + layout.odd_offsets[2 * half + 1] * kEachByte);
      bit_shifts_[half] = load(layout.bit_shifts + 4 * half);
    }
  }

  // Residues 4 * half to 4 * half + 3 of the group.
  __m256i residues(const std::uint8_t* group, std::size_t half) const {
    const auto* const first = reinterpret_cast<const __m128i*>(group + first_pair_[half]);
    const auto* const second = reinterpret_cast<const __m128i*>(group + second_pair_[half]);
    const __m256i pairs =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(first)), _mm_loadu_si128(second), 1);
    const __m256i shifted = _mm256_srlv_epi64(_mm256_shuffle_epi8(pairs, windows_[half]), bit_shifts_[half]);
    const __m256i fields = _mm256_and_si256(shifted, field_mask_);
    return _mm256_or_si256(_mm256_sll_epi64(fields, dropped_bits_), middle_);
  }

 private:
  __m256i windows_[2];
  __m256i bit_shifts_[2];
  __m256i field_mask_;
  __m256i middle_;
  __m128i dropped_bits_;
  std::size_t first_pair_[2];
  std::size_t second_pair_[2];
};

struct AllLanes {
  __m256i read(const std::uint64_t* from) const { return load(from); }
  void write(std::uint64_t* to, __m256i value) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
};

// Lanes that lie past the end are neither read nor written.
struct FirstLanes {
  __m256i mask;

  explicit FirstLanes(std::size_t count)
      : mask(_mm256_cmpgt_epi64(broadcast(count), _mm256_setr_epi64x(0, 1, 2, 3))) {}
  __m256i read(const std::uint64_t* from) const {
    return _mm256_maskload_epi64(reinterpret_cast<const long long*>(from), mask);
  }
  void write(std::uint64_t* to, __m256i value) const {
    _mm256_maskstore_epi64(reinterpret_cast<long long*>(to), mask, value);
  }
};

// Calls use(i, residues i to i + 3, lanes) for every fourth i; lanes past the last residue are fields of
// zero.
template <typename Use>
void for_each_vector(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                     Use use) {
  const GroupLayout layout(bits);
  const GroupUnpacker unpacker(layout, bits, dropped_bits);
  std::size_t bytes = (count * bits + 7) / 8;
  std::size_t i = 0;
  for (; i + kGroupFields <= count && bytes >= layout.reach; i += kGroupFields, in += bits, bytes -= bits) {
    use(i, unpacker.residues(in, 0), AllLanes());
    use(i + 4, unpacker.residues(in, 1), AllLanes());
  }
  if (i == count) return;
  std::uint8_t rest[kBufferBytes] = {};
  for (std::size_t k = 0; k < bytes; ++k) rest[k] = in[k];
  if (count * bits % 8 != 0) rest[bytes - 1] &= static_cast<std::uint8_t>((1U << (count * bits % 8)) - 1);
  for (const std::uint8_t* group = rest; i < count; i += kGroupFields, group += bits) {
    use(i, unpacker.residues(group, 0), FirstLanes(count - i));
    if (count - i > 4) use(i + 4, unpacker.residues(group, 1), FirstLanes(count - i - 4));
  }
}

bool wide(unsigned bits) {
  return bits > kMostBits;
}

void unpack(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
            std::uint64_t* out) {
  if (wide(bits)) return kBitPackingKernelsScalar.unpack(in, count, bits, dropped_bits, out);
  for_each_vector(in, count, bits, dropped_bits,
                  [=](std::size_t i, __m256i residues, auto lanes) { lanes.write(out + i, residues); });
}

void subtract(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
              std::uint64_t* sums) {
  if (wide(bits)) return kBitPackingKernelsScalar.subtract(in, count, bits, dropped_bits, sums);
  for_each_vector(in, count, bits, dropped_bits, [=](std::size_t i, __m256i residues, auto lanes) {
    lanes.write(sums + i, _mm256_sub_epi64(lanes.read(sums + i), residues));
  });
}

// Collects the sign of largest - residue over all residues.
class RangeCheck {
 public:
  explicit RangeCheck(std::uint64_t largest) : largest_(broadcast(largest)) {}
  void add(__m256i residues) { signs_ = _mm256_or_si256(signs_, _mm256_sub_epi64(largest_, residues)); }
  bool passed() const { return _mm256_movemask_pd(_mm256_castsi256_pd(signs_)) == 0; }

 private:
  __m256i largest_;
  __m256i signs_ = _mm256_setzero_si256();
};

bool accumulate(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                std::uint64_t largest_field, std::uint64_t* sums) {
  if (wide(bits))
    return kBitPackingKernelsScalar.accumulate(in, count, bits, dropped_bits, largest_field, sums);
  const std::uint64_t middle = (std::uint64_t{1} << dropped_bits) >> 1;
  RangeCheck check((largest_field << dropped_bits) | middle);
  for_each_vector(in, count, bits, dropped_bits, [=, &check](std::size_t i, __m256i residues, auto lanes) {
    check.add(residues);
    lanes.write(sums + i, _mm256_add_epi64(lanes.read(sums + i), residues));
  });
  return check.passed();
}

bool in_range(const std::uint8_t* in, std::size_t count, unsigned bits, std::uint64_t largest_field) {
  if (wide(bits)) return kBitPackingKernelsScalar.in_range(in, count, bits, largest_field);
  RangeCheck check(largest_field);
  for_each_vector(in, count, bits, 0, [&check](std::size_t, __m256i fields, auto) { check.add(fields); });
  return check.passed();
}

class GroupPacker {
 public:
  GroupPacker(const GroupLayout& layout, unsigned dropped_bits)
      : dropped_bits_(_mm_cvtsi32_si128(static_cast<int>(dropped_bits))) {
    for (std::size_t half = 0; half < 2; ++half) bit_shifts_[half] = load(layout.bit_shifts + 4 * half);
    alignas(32) std::uint8_t odd_bytes[4 * kPairBytes];
    alignas(32) std::uint8_t shared_bytes[4 * kPairBytes];
    for (std::size_t k = 0; k < 4 * kPairBytes; ++k) odd_bytes[k] = shared_bytes[k] = kZeroedByte;
    for (std::size_t p = 0; p < 4; ++p) {
      offsets_[p] = layout.pair_offsets[p];
      std::uint8_t* const odd = odd_bytes + p * kPairBytes + layout.odd_offsets[p];
      for (std::size_t k = 0; k < 8; ++k) odd[k] = static_cast<std::uint8_t>(8 + k);
      if (p == 0) continue;
      shared_bytes[p * kPairBytes] = static_cast<std::uint8_t>(offsets_[p] - offsets_[p - 1]);
    }
    for (std::size_t half = 0; half < 2; ++half) {
      odd_bytes_[half] = load_bytes(odd_bytes + 2 * half * kPairBytes);
      shared_bytes_[half] = load_bytes(shared_bytes + 2 * half * kPairBytes);
    }
  }

  // Writes layout.reach bytes, of which the group's own come first and zeros follow.
  void pack(const std::uint64_t* in, std::uint8_t* group) const {
    const __m256i low = pairs(in, 0);
    const __m256i high = pairs(in, 1);
    // The last bits of a pair may share a byte with the first bits of the next.
    const __m256i before_low = _mm256_permute2x128_si256(low, low, 0x08);
    const __m256i before_high = _mm256_permute2x128_si256(low, high, 0x21);
    const __m256i low_bytes = _mm256_or_si256(low, _mm256_shuffle_epi8(before_low, shared_bytes_[0]));
    const __m256i high_bytes = _mm256_or_si256(high, _mm256_shuffle_epi8(before_high, shared_bytes_[1]));
    store(group + offsets_[0], _mm256_castsi256_si128(low_bytes));
    store(group + offsets_[1], _mm256_extracti128_si256(low_bytes, 1));
    store(group + offsets_[2], _mm256_castsi256_si128(high_bytes));
    store(group + offsets_[3], _mm256_extracti128_si256(high_bytes, 1));
  }

 private:
  static constexpr std::uint8_t kZeroedByte = 0x80;  // as a shuffle index

  static __m256i load_bytes(const std::uint8_t* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::uint8_t* to, __m128i bytes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
  }

  __m256i pairs(const std::uint64_t* in, std::size_t half) const {
    const __m256i fields = _mm256_srl_epi64(load(in + 4 * half), dropped_bits_);
    const __m256i shifted = _mm256_sllv_epi64(fields, bit_shifts_[half]);
    const __m256i even = _mm256_blend_epi32(shifted, _mm256_setzero_si256(), 0xcc);
    return _mm256_or_si256(even, _mm256_shuffle_epi8(shifted, odd_bytes_[half]));
  }

  __m256i bit_shifts_[2];
  __m256i odd_bytes_[2];
  __m256i shared_bytes_[2];
  __m128i dropped_bits_;
  std::size_t offsets_[4];
};

void pack(const std::uint64_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
          std::uint8_t* out) {
  if (wide(bits) || bits < kFewestBitsToPack) {
    return kBitPackingKernelsScalar.pack(in, count, bits, dropped_bits, out);
  }
  const GroupLayout layout(bits);
  const GroupPacker packer(layout, dropped_bits);
  std::size_t bytes = (count * bits + 7) / 8;
  std::size_t i = 0;
  for (; i + kGroupFields <= count && bytes >= layout.reach; i += kGroupFields, out += bits, bytes -= bits) {
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

}  // namespace

const BitPackingKernels kBitPackingKernelsAvx2 = {pack, unpack, accumulate, subtract, in_range};

}  // namespace shieldfl::ring
