// The NTT in 52-bit lanes. The six stages whose butterflies are less than 64 values apart are done on 64
// values at a time in registers, the others three at a time, so that memory is gone over as rarely as may be.
#include "ring/lanes_avx512.h"
#include "ring/ntt_kernels.h"

namespace shieldfl::ring {
namespace {

// Six stages work on so many values, in so many vectors.
constexpr std::size_t kBlock = 64;
constexpr std::size_t kBlockVectors = 8;

struct Roots {
  const std::uint64_t* first;
  const std::uint64_t* second;

  [[nodiscard]] Factors one(std::size_t i) const { return {broadcast(first[i]), broadcast(second[i])}; }
  // Two, four or eight neighbours, repeated through the vector.
  [[nodiscard]] Factors two(std::size_t i) const { return {repeat_two(first + i), repeat_two(second + i)}; }
  [[nodiscard]] Factors four(std::size_t i) const {
    return {repeat_four(first + i), repeat_four(second + i)};
  }
  [[nodiscard]] Factors eight(std::size_t i) const { return {load(first + i), load(second + i)}; }

 private:
  static Lanes repeat_two(const std::uint64_t* from) {
    return _mm512_maskz_broadcast_i64x2(kAllLanes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Lanes repeat_four(const std::uint64_t* from) {
    return _mm512_maskz_broadcast_i64x4(kAllLanes,
                                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
};

// x0 y0 x1 y1 ...: turns a pair of vectors whose butterflies are `half` apart into one for half / 2.
void interleave(Lanes& x, Lanes& y) {
  const Lanes low = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), y);
  y = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), y);
  x = low;
}

void deinterleave(Lanes& x, Lanes& y) {
  const Lanes even = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), y);
  y = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), y);
  x = even;
}

// Cooley-Tukey, after Harvey: x + w y and x - w y, from [0, 4q) to [0, 4q); kReduced: x is in [0, 2q)
// already.
template <bool kReduced = false>
void butterfly(const Residues& ring, Lanes& x, Lanes& y, Factors w) {
  const Lanes a = kReduced ? x : subtract_if_above(x, ring.two_q);
  const Lanes product = ring.multiply_lazy(y, w);
  x = add(a, product);
  y = subtract(add(a, ring.two_q), product);
}

// kStages stages, 1 to 3, on the vectors `stride` apart; `node` is the index of the first one's root.
template <std::size_t kStages, bool kReduced>
[[gnu::always_inline]] inline void forward_stages(const Residues& ring, Roots roots, std::size_t node,
                                                  Lanes* v) {
  constexpr std::size_t kVectors = std::size_t{1} << kStages;
#pragma GCC unroll 3
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    const std::size_t half = kVectors >> (stage + 1);
#pragma GCC unroll 4
    for (std::size_t group = 0; group < std::size_t{1} << stage; ++group) {
      const Factors w = roots.one((node << stage) + group);
#pragma GCC unroll 4
      for (std::size_t i = 2 * half * group; i < 2 * half * group + half; ++i) {
        if (kReduced && stage == 0) {
          butterfly<true>(ring, v[i], v[i + half], w);
        } else {
          butterfly(ring, v[i], v[i + half], w);
        }
      }
    }
  }
}

template <std::size_t kStages, bool kReduced>
void forward_pass(const Residues& ring, Roots roots, std::size_t nodes, std::uint64_t* values,
                  std::size_t degree) {
  constexpr std::size_t kVectors = std::size_t{1} << kStages;
  const std::size_t stride = degree / nodes / kVectors;
  for (std::size_t node = nodes; node < 2 * nodes; ++node, values += kVectors * stride) {
    for (std::size_t i = 0; i < stride; i += kLanes) {
      Lanes v[kVectors];
#pragma GCC unroll 8
      for (std::size_t k = 0; k < kVectors; ++k) v[k] = load(values + k * stride + i);
      forward_stages<kStages, kReduced>(ring, roots, node, v);
#pragma GCC unroll 8
      for (std::size_t k = 0; k < kVectors; ++k) store(values + k * stride + i, v[k]);
    }
  }
}

void forward_block(const Residues& ring, Roots roots, std::size_t node, std::uint64_t* values) {
  Lanes v[kBlockVectors];
#pragma GCC unroll 8
  for (std::size_t k = 0; k < kBlockVectors; ++k) v[k] = load(values + k * kLanes);
  forward_stages<3, false>(ring, roots, node, v);
#pragma GCC unroll 4
  for (std::size_t k = 0; k < kBlockVectors; k += 2) {
    Lanes& x = v[k];
    Lanes& y = v[k + 1];
    interleave(x, y);
    butterfly(ring, x, y, roots.two(8 * node + k));
    interleave(x, y);
    butterfly(ring, x, y, roots.four(16 * node + 2 * k));
    interleave(x, y);
    butterfly(ring, x, y, roots.eight(32 * node + 4 * k));
    interleave(x, y);
    store(values + k * kLanes, subtract_if_above(subtract_if_above(x, ring.two_q), ring.q));
    store(values + (k + 1) * kLanes, subtract_if_above(subtract_if_above(y, ring.two_q), ring.q));
  }
}

void forward(std::uint64_t* values, const NttTable& table) {
  const Residues ring(table.q);
  const Roots roots{table.forward_first, table.forward_second};
  const std::size_t blocks = table.degree / kBlock;
  std::size_t nodes = blocks;
  // The first pass takes the stages that are left over by threes.
  while (nodes > 8) nodes /= 8;
  if (nodes == 8) forward_pass<3, true>(ring, roots, 1, values, table.degree);
  if (nodes == 4) forward_pass<2, true>(ring, roots, 1, values, table.degree);
  if (nodes == 2) forward_pass<1, true>(ring, roots, 1, values, table.degree);
  for (; nodes < blocks; nodes *= 8) forward_pass<3, false>(ring, roots, nodes, values, table.degree);
  for (std::size_t block = 0; block < blocks; ++block) {
    forward_block(ring, roots, blocks + block, values + block * kBlock);
  }
}

// How a stage leaves its results. Those that are second operands next are left 2q below [0, 2q), which saves
// the next butterfly a step; kFinal are in [0, q).
enum class Results { kPlain, kBelow, kFinal };

// The factors of the last stage, which hold 1 / degree.
struct LastFactors {
  Factors one;
  Factors root;
};

// Gentleman-Sande: x + y and w (x - y), from [0, 2q) to [0, 2q); `below`: to [-2q, 0). y_below is y - 2q.
void inverse_butterfly(const Residues& ring, Lanes& x, Lanes& y, Lanes y_below, Factors w, bool below) {
  const Lanes sum = add(x, y_below);  // in [-2q, 2q)
  const Lanes difference = subtract(x, y_below);
  x = below ? subtract_if_not_negative(sum, ring.two_q) : add_if_negative(sum, ring.two_q);
  y = below ? ring.multiply_lazy_below(difference, w) : ring.multiply_lazy(difference, w);
}

void inverse_butterfly(const Residues& ring, Lanes& x, Lanes& y, Factors w) {
  inverse_butterfly(ring, x, y, subtract(y, ring.two_q), w, false);
}

// The first one has residues in [0, q) to start from.
void first_inverse_butterfly(const Residues& ring, Lanes& x, Lanes& y, Factors w) {
  const Lanes difference = add(subtract(x, y), ring.q);
  x = add(x, y);
  y = ring.multiply_lazy(difference, w);
}

// The last one leaves residues in [0, q).
void last_inverse_butterfly(const Residues& ring, Lanes& x, Lanes& y, Lanes y_below,
                            const LastFactors& last) {
  const Lanes difference = subtract(x, y_below);
  x = ring.multiply(add(add(x, y_below), ring.two_q), last.one);
  y = ring.multiply(difference, last.root);
}

// kStages stages, 1 to 3; `node` is the index of the last one's root. kBelow: vectors of odd index are 2q
// below.
template <std::size_t kStages, bool kBelow, Results kResults>
[[gnu::always_inline]] inline void inverse_stages(const Residues& ring, Roots roots, const LastFactors& last,
                                                  std::size_t node, Lanes* v) {
  constexpr std::size_t kVectors = std::size_t{1} << kStages;
#pragma GCC unroll 3
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    const std::size_t half = std::size_t{1} << stage;
    const std::size_t groups = kVectors >> (stage + 1);
#pragma GCC unroll 4
    for (std::size_t group = 0; group < groups; ++group) {
      const Factors w = roots.one(node * groups + group);
#pragma GCC unroll 4
      for (std::size_t i = 2 * half * group; i < 2 * half * group + half; ++i) {
        Lanes& x = v[i];
        Lanes& y = v[i + half];
        const Lanes y_below = kBelow || stage != 0 ? y : subtract(y, ring.two_q);
        if (groups == 1 && kResults == Results::kFinal) {
          last_inverse_butterfly(ring, x, y, y_below, last);
        } else {
          inverse_butterfly(ring, x, y, y_below, w,
                            groups == 1 ? kResults == Results::kBelow : group % 2 == 1);
        }
      }
    }
  }
}

template <std::size_t kStages, Results kResults>
void inverse_columns(const Residues& ring, Roots roots, const LastFactors& last, std::size_t node,
                     std::uint64_t* values, std::size_t stride) {
  constexpr std::size_t kVectors = std::size_t{1} << kStages;
  for (std::size_t i = 0; i < stride; i += kLanes) {
    Lanes v[kVectors];
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kVectors; ++k) v[k] = load(values + k * stride + i);
    inverse_stages<kStages, true, kResults>(ring, roots, last, node, v);
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kVectors; ++k) store(values + k * stride + i, v[k]);
  }
}

template <Results kResults>
void inverse_block(const Residues& ring, Roots roots, const LastFactors& last, std::size_t node,
                   std::uint64_t* values) {
  Lanes v[kBlockVectors];
#pragma GCC unroll 4
  for (std::size_t k = 0; k < kBlockVectors; k += 2) {
    Lanes& x = v[k];
    Lanes& y = v[k + 1];
    x = load(values + k * kLanes);
    y = load(values + (k + 1) * kLanes);
    deinterleave(x, y);
    first_inverse_butterfly(ring, x, y, roots.eight(32 * node + 4 * k));
    deinterleave(x, y);
    inverse_butterfly(ring, x, y, roots.four(16 * node + 2 * k));
    deinterleave(x, y);
    inverse_butterfly(ring, x, y, roots.two(8 * node + k));
    deinterleave(x, y);
  }
  inverse_stages<3, false, kResults>(ring, roots, last, node, v);
#pragma GCC unroll 8
  for (std::size_t k = 0; k < kBlockVectors; ++k) store(values + k * kLanes, v[k]);
}

template <std::size_t kStages>
void last_inverse_pass(const Residues& ring, Roots roots, const LastFactors& last, std::uint64_t* values,
                       std::size_t degree) {
  inverse_columns<kStages, Results::kFinal>(ring, roots, last, 1, values, degree >> kStages);
}

void inverse(std::uint64_t* values, const NttTable& table) {
  const Residues ring(table.q);
  const Roots roots{table.inverse_first, table.inverse_second};
  const Factors degree_inverse{broadcast(table.degree_inverse_first), broadcast(table.degree_inverse_second)};
  const LastFactors last{degree_inverse,
                         ring.prepare(ring.multiply(broadcast(table.inverse_first[1]), degree_inverse),
                                      quotient_scale(table.q))};
  std::size_t nodes = table.degree / kBlock;
  if (nodes == 1) return inverse_block<Results::kFinal>(ring, roots, last, 1, values);
  for (std::size_t node = nodes; node < 2 * nodes; node += 2) {
    std::uint64_t* block = values + (node - nodes) * kBlock;
    inverse_block<Results::kPlain>(ring, roots, last, node, block);
    inverse_block<Results::kBelow>(ring, roots, last, node + 1, block + kBlock);
  }
  for (; nodes > 8; nodes /= 8) {
    const std::size_t stride = table.degree / nodes;
    for (std::size_t node = nodes / 8; node < nodes / 4; node += 2) {
      std::uint64_t* columns = values + (node - nodes / 8) * 8 * stride;
      inverse_columns<3, Results::kPlain>(ring, roots, last, node, columns, stride);
      inverse_columns<3, Results::kBelow>(ring, roots, last, node + 1, columns + 8 * stride, stride);
    }
  }
  if (nodes == 8) return last_inverse_pass<3>(ring, roots, last, values, table.degree);
  if (nodes == 4) return last_inverse_pass<2>(ring, roots, last, values, table.degree);
  last_inverse_pass<1>(ring, roots, last, values, table.degree);
}

__mmask8 first_lanes(std::size_t count) {
  return static_cast<__mmask8>(count >= kLanes ? 0xFF : (1U << count) - 1);
}

void prepare(const std::uint64_t* factors, std::size_t count, std::uint64_t q, std::uint64_t* first,
             std::uint64_t* second) {
  const Residues ring(q);
  const __m512d scale = quotient_scale(q);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const __mmask8 lanes = first_lanes(count - i);
    const Factors prepared = ring.prepare(_mm512_maskz_loadu_epi64(lanes, factors + i), scale);
    _mm512_mask_storeu_epi64(first + i, lanes, prepared.value);
    _mm512_mask_storeu_epi64(second + i, lanes, prepared.quotient);
  }
}

void multiply_row(const std::uint64_t* in, const std::uint64_t* first, const std::uint64_t* second,
                  std::size_t count, std::uint64_t q, std::uint64_t* out) {
  const Residues ring(q);
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    store(out + i, ring.multiply(load(in + i), {load(first + i), load(second + i)}));
  }
  const __mmask8 lanes = first_lanes(count - whole);
  const Factors w{_mm512_maskz_loadu_epi64(lanes, first + whole),
                  _mm512_maskz_loadu_epi64(lanes, second + whole)};
  _mm512_mask_storeu_epi64(out + whole, lanes, ring.multiply(_mm512_maskz_loadu_epi64(lanes, in + whole), w));
}

}  // namespace

const NttKernels kNttKernelsAvx512 = {prepare, forward, inverse, multiply_row};

}  // namespace shieldfl::ring
