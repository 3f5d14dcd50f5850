// The NTT in double precision, for the instruction-set files that include this. A prepared factor w is the
// bits of two doubles: the representative of w in (-q/2, q/2), and that over q. Comments give bounds of lanes
// in units of q.
//
// A pass takes two stages over the row, whose elements are doubles between passes. The stages that pair
// elements at most eight apart are one pass, the tail, over blocks of 16 that stay in registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ring/double_lanes.h"
#include "ring/ntt_kernels.h"

namespace shieldfl::ring {
namespace {

constexpr std::size_t kTailBlock = 16;

// Prepared factors, from some index on.
struct Powers {
  const std::uint64_t* first;
  const std::uint64_t* second;

  [[nodiscard]] Powers from(std::size_t index) const { return {first + index, second + index}; }
};

inline Powers forward_powers(const NttTable& table) {
  return {table.forward_first, table.forward_second};
}
inline Powers inverse_powers(const NttTable& table) {
  return {table.inverse_first, table.inverse_second};
}

inline FactorLanes broadcast(Powers from) {
  return {broadcast(from.first), broadcast(from.second)};
}

inline FactorLanes load_even_twice(Powers from) {
  return {load_even_twice(from.first), load_even_twice(from.second)};
}

inline FactorLanes load_pairs(Powers from) {
  return {load_pairs(from.first), load_pairs(from.second)};
}

inline void exchange_halves(Quad& v) {
  exchange_halves(v.at0, v.at2);
  exchange_halves(v.at1, v.at3);
}

inline void exchange_neighbours(Quad& v) {
  exchange_neighbours(v.at0, v.at2);
  exchange_neighbours(v.at1, v.at3);
}

// Cooley-Tukey. From at most B <= 4 to at most B + 1/2 + B/32; the first stage starts from 1.
inline void forward_butterfly(Lanes& a, Lanes& b, const FactorLanes& w, const Prime& prime) {
  const Lanes product = multiply(b, w, prime);
  b = a - product;
  a = a + product;
}

// Gentleman-Sande. Sums grow twofold; products are at most 1/2 + B/16, for B <= 2.
inline void inverse_butterfly(Lanes& a, Lanes& b, const FactorLanes& w, const Prime& prime) {
  const Lanes difference = a - b;
  a = a + b;
  b = multiply(difference, w, prime);
}

// Five stages take 1 to at most 3.83, and 1.13 to at most 3.98, which a sixth may still multiply. If that one
// reduces what it does not multiply (kReduce), it leaves at most 1/2 + 1/2 + 3.98/32 < 1.13.
template <bool kReduce>
inline void forward_stages(Quad& v, const Powers& powers, std::size_t index, const Prime& prime) {
  const FactorLanes w = broadcast(powers.from(index));
  forward_butterfly(v.at0, v.at2, w, prime);
  forward_butterfly(v.at1, v.at3, w, prime);
  if constexpr (kReduce) {
    v.at0 = reduce(v.at0, prime);
    v.at2 = reduce(v.at2, prime);
  }
  forward_butterfly(v.at0, v.at1, broadcast(powers.from(2 * index)), prime);
  forward_butterfly(v.at2, v.at3, broadcast(powers.from(2 * index + 1)), prime);
}

void forward_first_stage(std::uint64_t* values, const NttTable& table, const Prime& prime) {
  const FactorLanes w = broadcast(forward_powers(table).from(1));
  const std::size_t half = table.degree / 2;
  for (std::size_t i = 0; i < half; i += kLanes) {
    Lanes a = from_unsigned(load(values + i));
    Lanes b = from_unsigned(load(values + half + i));
    forward_butterfly(a, b, w, prime);
    store(values + i, a);
    store(values + half + i, b);
  }
}

void forward_first_pass(std::uint64_t* values, const NttTable& table, const Prime& prime) {
  const std::size_t quarter = table.degree / 4;
  for (std::size_t i = 0; i < quarter; i += kLanes) {
    Quad v = from_unsigned(load_quad(values + i, quarter));
    forward_stages<false>(v, forward_powers(table), 1, prime);
    store_quad(values + i, quarter, v);
  }
}

template <bool kReduce>
void forward_pass(std::uint64_t* values, std::size_t groups, const NttTable& table, const Prime& prime) {
  const std::size_t quarter = table.degree / groups / 4;
  for (std::size_t group = 0; group < groups; ++group) {
    std::uint64_t* block = values + 4 * quarter * group;
    for (std::size_t i = 0; i < quarter; i += kLanes) {
      Quad v = load_quad(block + i, quarter);
      forward_stages<kReduce>(v, forward_powers(table), groups + group, prime);
      store_quad(block + i, quarter, v);
    }
  }
}

template <bool kReduce>
void forward_tail(std::uint64_t* values, const NttTable& table, const Prime& prime) {
  const Powers powers = forward_powers(table);
  const std::size_t groups = table.degree / kTailBlock;
  for (std::size_t group = 0; group < groups; ++group) {
    std::uint64_t* block = values + kTailBlock * group;
    const std::size_t index = groups + group;
    Quad v = load_quad(block, kLanes);
    forward_stages<kReduce>(v, powers, index, prime);
    exchange_halves(v);
    forward_butterfly(v.at0, v.at2, load_even_twice(powers.from(4 * index)), prime);
    forward_butterfly(v.at1, v.at3, load_even_twice(powers.from(4 * index + 1)), prime);
    exchange_neighbours(v);
    forward_butterfly(v.at0, v.at2, load_pairs(powers.from(8 * index)), prime);
    forward_butterfly(v.at1, v.at3, load_pairs(powers.from(8 * index + 2)), prime);
    // At most 3.98 + 1/2 + 3.98/32 by now.
    v = to_residues(reduce(v, prime), prime);
    exchange_neighbours(v);
    exchange_halves(v);
    store_quad(block, kLanes, v);
  }
}

// Every third pass reduces, where an odd number of stages begins with one that counts as the end of a pass.
void forward(std::uint64_t* values, const NttTable& table) {
  const Prime prime = make_prime(table.q);
  const bool odd = (__builtin_ctzll(table.degree) & 1) != 0;
  if (odd) {
    forward_first_stage(values, table, prime);
  } else {
    forward_first_pass(values, table, prime);
  }
  unsigned pass = 2;
  for (std::size_t groups = odd ? 2 : 4; groups < table.degree / kTailBlock; groups *= 4, ++pass) {
    if (pass % 3 == 0) {
      forward_pass<true>(values, groups, table, prime);
    } else {
      forward_pass<false>(values, groups, table, prime);
    }
  }
  if (pass % 3 == 0) {
    forward_tail<true>(values, table, prime);
  } else {
    forward_tail<false>(values, table, prime);
  }
}

// From integers in [0, 1] the first two stages make sums in [0, 4], their differences are at most 2, and all
// else is at most 2 (1/2 + 1/32). The third has sums of at most 8, which it reduces, and products of at most
// 1/2 + 4/32; the last has sums of at most 5/4.
void inverse_tail(std::uint64_t* values, const NttTable& table, const Prime& prime) {
  const Powers powers = inverse_powers(table);
  const std::size_t groups = table.degree / kTailBlock;
  for (std::size_t group = 0; group < groups; ++group) {
    std::uint64_t* block = values + kTailBlock * group;
    const std::size_t index = groups + group;
    Quad v = from_unsigned(load_quad(block, kLanes));
    exchange_halves(v);
    exchange_neighbours(v);
    inverse_butterfly(v.at0, v.at2, load_pairs(powers.from(8 * index)), prime);
    inverse_butterfly(v.at1, v.at3, load_pairs(powers.from(8 * index + 2)), prime);
    exchange_neighbours(v);
    inverse_butterfly(v.at0, v.at2, load_even_twice(powers.from(4 * index)), prime);
    inverse_butterfly(v.at1, v.at3, load_even_twice(powers.from(4 * index + 1)), prime);
    exchange_halves(v);
    inverse_butterfly(v.at0, v.at1, broadcast(powers.from(2 * index)), prime);
    inverse_butterfly(v.at2, v.at3, broadcast(powers.from(2 * index + 1)), prime);
    v.at0 = reduce(v.at0, prime);
    v.at2 = reduce(v.at2, prime);
    const FactorLanes w = broadcast(powers.from(index));
    inverse_butterfly(v.at0, v.at2, w, prime);
    inverse_butterfly(v.at1, v.at3, w, prime);
    store_quad(block, kLanes, v);
  }
}

// From at most 5/4 to at most 5/4: sums of 5/2 and products of 1/2 + 5/64; then a sum of 5, which is reduced,
// a product of at most 1 + 5/32 from a difference of 5, a sum of products of at most 1 + 5/32, and a product.
void inverse_pass(std::uint64_t* values, std::size_t groups, const NttTable& table, const Prime& prime) {
  const Powers powers = inverse_powers(table);
  const std::size_t quarter = table.degree / groups / 4;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t index = groups + group;
    const FactorLanes w = broadcast(powers.from(index));
    std::uint64_t* block = values + 4 * quarter * group;
    for (std::size_t i = 0; i < quarter; i += kLanes) {
      Quad v = load_quad(block + i, quarter);
      inverse_butterfly(v.at0, v.at1, broadcast(powers.from(2 * index)), prime);
      inverse_butterfly(v.at2, v.at3, broadcast(powers.from(2 * index + 1)), prime);
      const Lanes difference = v.at0 - v.at2;
      v.at0 = reduce(v.at0 + v.at2, prime);
      v.at2 = multiply_wide(difference, w, prime);
      inverse_butterfly(v.at1, v.at3, w, prime);
      store_quad(block + i, quarter, v);
    }
  }
}

// The last stage with 1/N: (a, b) -> ((a + b) / N, (a - b) w / N). The factor of the difference is made here,
// by a reduction to less than q/2, as factors must be.
struct LastStage {
  FactorLanes scale;
  FactorLanes scaled_root;

  LastStage(const NttTable& table, const Prime& prime)
      : scale(broadcast(Powers{&table.degree_inverse_first, &table.degree_inverse_second})) {
    const Lanes product = multiply(broadcast(table.inverse_first + 1), scale, prime);
    scaled_root.value = reduce(product, prime);
    scaled_root.quotient = scaled_root.value / prime.q;
  }

  // For a + b and a - b of at most 4.
  void apply(Lanes& a, Lanes& b, const Prime& prime) const {
    const Lanes difference = a - b;
    a = to_residues(multiply(a + b, scale, prime), prime);
    b = to_residues(multiply(difference, scaled_root, prime), prime);
  }
};

void inverse_last_stage(std::uint64_t* values, const NttTable& table, const Prime& prime) {
  const LastStage last(table, prime);
  const std::size_t half = table.degree / 2;
  for (std::size_t i = 0; i < half; i += kLanes) {
    Lanes a = load(values + i);
    Lanes b = load(values + half + i);
    last.apply(a, b, prime);
    store(values + i, a);
    store(values + half + i, b);
  }
}

void inverse_last_pass(std::uint64_t* values, const NttTable& table, const Prime& prime) {
  const LastStage last(table, prime);
  const Powers powers = inverse_powers(table);
  const std::size_t quarter = table.degree / 4;
  for (std::size_t i = 0; i < quarter; i += kLanes) {
    Quad v = load_quad(values + i, quarter);
    inverse_butterfly(v.at0, v.at1, broadcast(powers.from(2)), prime);
    inverse_butterfly(v.at2, v.at3, broadcast(powers.from(3)), prime);
    v.at0 = reduce(v.at0, prime);
    v.at2 = reduce(v.at2, prime);
    last.apply(v.at0, v.at2, prime);
    last.apply(v.at1, v.at3, prime);
    store_quad(values + i, quarter, v);
  }
}

void inverse(std::uint64_t* values, const NttTable& table) {
  const Prime prime = make_prime(table.q);
  inverse_tail(values, table, prime);
  std::size_t groups = table.degree / kTailBlock / 4;
  for (; groups > 1; groups /= 4) inverse_pass(values, groups, table, prime);
  if (groups == 1) {
    inverse_last_pass(values, table, prime);
  } else {
    inverse_last_stage(values, table, prime);
  }
}

inline std::uint64_t bits(double value) {
  return __builtin_bit_cast(std::uint64_t, value);
}

void prepare(const std::uint64_t* factors, std::size_t count, std::uint64_t q, std::uint64_t* first,
             std::uint64_t* second) {
  for (std::size_t i = 0; i < count; ++i) {
    const double factor = balanced_factor(factors[i], q);
    first[i] = bits(factor);
    second[i] = bits(factor_quotient(factor, q));
  }
}

void multiply_row(const std::uint64_t* in, const std::uint64_t* first, const std::uint64_t* second,
                  std::size_t count, std::uint64_t q, std::uint64_t* out) {
  const Prime prime = make_prime(q);
  const std::size_t whole = count - count % kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    const Lanes product = multiply(from_unsigned(load(in + i)), {load(first + i), load(second + i)}, prime);
    store(out + i, to_residues(product, prime));
  }
  const auto rest = first_lanes(count - whole);
  const FactorLanes factors{load_some(first + whole, rest), load_some(second + whole, rest)};
  const Lanes product = multiply(from_unsigned(load_some(in + whole, rest)), factors, prime);
  store_some(out + whole, rest, to_residues(product, prime));
}

}  // namespace
}  // namespace shieldfl::ring
