// Eight fields fill `bits` whole bytes of one vector. A field starts at most seven bits after the start of a
// byte, so that it fits in a 64-bit lane once the eight bytes from there are.
#include <immintrin.h>

#include "ring/bit_packing_kernels.h"

namespace shieldfl::ring {
namespace {

constexpr std::size_t kGroupFields = 8;
constexpr unsigned kMostBits = 57;         // and seven bits before them make 64
constexpr unsigned kFewestBitsToPack = 8;  // a byte must not hold parts of three fields
constexpr __mmask8 kAllLanes = 0xff;
constexpr __mmask64 kAllBytes = ~__mmask64{0};

// Where a masked form names all lanes, the plain one makes g++ 12 warn about its own header.

__m512i broadcast(std::uint64_t value) {
  return _mm512_set1_epi64(static_cast<long long>(value));
}

__mmask64 first_bytes(std::size_t count) {
  return _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(count));
}

__mmask8 first_lanes(std::size_t count) {
  return static_cast<__mmask8>((1U << count) - 1);
}

// In each lane, eight ascending numbers that start with the lane's.
__m512i ascending_bytes(__m512i first) {
  return _mm512_add_epi64(_mm512_mullo_epi64(first, broadcast(0x0101010101010101)),
                          broadcast(0x0706050403020100));
}

// The bit in the packed group where each field starts.
__m512i field_positions(unsigned bits) {
  return _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), broadcast(bits));
}

// Calls use(i, residues i to i + 7, lanes that hold any) for every eighth i.
template <typename Use>
void for_each_group(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                    Use use) {
  const __m512i positions = field_positions(bits);
  const __m512i windows = ascending_bytes(_mm512_maskz_srli_epi64(kAllLanes, positions, 3));
  // A rotation moves each field to where its residue has it; what else comes along is masked off.
  const __m512i rotations =
      _mm512_sub_epi64(_mm512_and_si512(positions, broadcast(7)), broadcast(dropped_bits));
  const __m512i kept = broadcast(((std::uint64_t{1} << bits) - 1) << dropped_bits);
  const __m512i middle = broadcast((std::uint64_t{1} << dropped_bits) >> 1);
  const auto residues = [=](__m512i group) {
    const __m512i rotated = _mm512_maskz_rorv_epi64(
        kAllLanes, _mm512_maskz_permutexvar_epi8(kAllBytes, windows, group), rotations);
    return _mm512_ternarylogic_epi64(rotated, kept, middle, 0xea);  // (rotated and kept) or middle
  };
  const __mmask64 group_bytes = first_bytes(bits);
  std::size_t i = 0;
  for (; i + kGroupFields <= count; i += kGroupFields, in += bits) {
    use(i, residues(_mm512_maskz_loadu_epi8(group_bytes, in)), kAllLanes);
  }
  if (i == count) return;
  const std::size_t bytes = ((count - i) * bits + 7) / 8;
  use(i, residues(_mm512_maskz_loadu_epi8(first_bytes(bytes), in)), first_lanes(count - i));
}

bool wide(unsigned bits) {
  return bits > kMostBits;
}

void unpack(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
            std::uint64_t* out) {
  if (wide(bits)) return kBitPackingKernelsScalar.unpack(in, count, bits, dropped_bits, out);
  for_each_group(in, count, bits, dropped_bits, [=](std::size_t i, __m512i residues, __mmask8 lanes) {
    _mm512_mask_storeu_epi64(out + i, lanes, residues);
  });
}

void subtract(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
              std::uint64_t* sums) {
  if (wide(bits)) return kBitPackingKernelsScalar.subtract(in, count, bits, dropped_bits, sums);
  for_each_group(in, count, bits, dropped_bits, [=](std::size_t i, __m512i residues, __mmask8 lanes) {
    const __m512i sum = _mm512_maskz_loadu_epi64(lanes, sums + i);
    _mm512_mask_storeu_epi64(sums + i, lanes, _mm512_sub_epi64(sum, residues));
  });
}

bool none_above(__m512i largest, std::uint64_t limit) {
  return _mm512_cmpgt_epu64_mask(largest, broadcast(limit)) == 0;
}

bool accumulate(const std::uint8_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
                std::uint64_t largest_field, std::uint64_t* sums) {
  if (wide(bits))
    return kBitPackingKernelsScalar.accumulate(in, count, bits, dropped_bits, largest_field, sums);
  __m512i largest = _mm512_setzero_si512();
  for_each_group(in, count, bits, dropped_bits,
                 [=, &largest](std::size_t i, __m512i residues, __mmask8 lanes) {
                   largest = _mm512_mask_max_epu64(largest, lanes, largest, residues);
                   const __m512i sum = _mm512_maskz_loadu_epi64(lanes, sums + i);
                   _mm512_mask_storeu_epi64(sums + i, lanes, _mm512_add_epi64(sum, residues));
                 });
  const std::uint64_t middle = (std::uint64_t{1} << dropped_bits) >> 1;
  return none_above(largest, (largest_field << dropped_bits) | middle);
}

bool in_range(const std::uint8_t* in, std::size_t count, unsigned bits, std::uint64_t largest_field) {
  if (wide(bits)) return kBitPackingKernelsScalar.in_range(in, count, bits, largest_field);
  __m512i largest = _mm512_setzero_si512();
  for_each_group(in, count, bits, 0, [&largest](std::size_t, __m512i fields, __mmask8 lanes) {
    largest = _mm512_mask_max_epu64(largest, lanes, largest, fields);
  });
  return none_above(largest, largest_field);
}

// Where the bytes of every second field go in the packed group.
struct Spread {
  __m512i source_bytes;
  __mmask64 filled;

  Spread(unsigned bits, std::size_t first_field) : source_bytes(_mm512_setzero_si512()), filled(0) {
    const __m512i own_place = ascending_bytes(_mm512_setr_epi64(0, 8, 16, 24, 32, 40, 48, 56));
    for (std::size_t field = first_field; field < kGroupFields; field += 2) {
      const std::size_t first_byte = field * bits / 8;
      const __mmask64 bytes = first_bytes(((field + 1) * bits + 7) / 8) & ~first_bytes(first_byte);
      const __m512i distance = _mm512_set1_epi8(static_cast<char>(8 * field - first_byte));
      source_bytes = _mm512_mask_add_epi8(source_bytes, bytes, own_place, distance);
      filled |= bytes;
    }
  }

  __m512i of(__m512i fields) const { return _mm512_maskz_permutexvar_epi8(filled, source_bytes, fields); }
};

void pack(const std::uint64_t* in, std::size_t count, unsigned bits, unsigned dropped_bits,
          std::uint8_t* out) {
  if (wide(bits) || bits < kFewestBitsToPack) {
    return kBitPackingKernelsScalar.pack(in, count, bits, dropped_bits, out);
  }
  const __m512i bit_shifts = _mm512_and_si512(field_positions(bits), broadcast(7));
  const __m128i dropped = _mm_cvtsi32_si128(static_cast<int>(dropped_bits));
  const Spread even(bits, 0);
  const Spread odd(bits, 1);
  const auto packed = [=](__m512i residues) {
    const __m512i fields =
        _mm512_maskz_sllv_epi64(kAllLanes, _mm512_maskz_srl_epi64(kAllLanes, residues, dropped), bit_shifts);
    return _mm512_or_si512(even.of(fields), odd.of(fields));
  };
  const __mmask64 group_bytes = first_bytes(bits);
  std::size_t i = 0;
  for (; i + kGroupFields <= count; i += kGroupFields, out += bits) {
    _mm512_mask_storeu_epi8(out, group_bytes, packed(_mm512_loadu_si512(in + i)));
  }
  if (i == count) return;
  const std::size_t bytes = ((count - i) * bits + 7) / 8;
  const __m512i rest = _mm512_maskz_loadu_epi64(first_lanes(count - i), in + i);
  _mm512_mask_storeu_epi8(out, first_bytes(bytes), packed(rest));
}

}  // namespace

const BitPackingKernels kBitPackingKernelsAvx512 = {pack, unpack, accumulate, subtract, in_range};

}  // namespace shieldfl::ring
