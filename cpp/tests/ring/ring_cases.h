// Moduli, rows and instruction sets for the tests of the ring's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "common/cpu_features.h"
#include "ring/modulus.h"

namespace shieldfl::tests {

// The sets beyond the scalar one that this processor has.
inline std::span<const InstructionSet> vector_sets() {
  return supported_instruction_sets().subspan(1);
}

// Miller-Rabin with the bases that decide every 64-bit number; n odd and above 37.
inline bool is_prime(std::uint64_t n) {
  std::uint64_t odd = n - 1;
  unsigned twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (const std::uint64_t base : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
    std::uint64_t power = ring::power_vartime(base, odd, n);
    bool passes = power == 1 || power == n - 1;
    for (unsigned i = 1; i < twos && !passes; ++i) {
      power = ring::power_vartime(power, 2, n);
      passes = power == n - 1;
    }
    if (!passes) return false;
  }
  return true;
}

// The largest prime of `bits` bits that is 1 modulo 2 * degree, or 0 where there is none; 2^(bits - 1) is a
// multiple of 2 * degree.
inline std::uint64_t largest_ntt_prime(unsigned bits, std::size_t degree) {
  const std::uint64_t step = 2 * degree;
  const std::uint64_t least = std::uint64_t{1} << (bits - 1);
  for (std::uint64_t q = 2 * least - step + 1; q > least && q < 2 * least; q -= step) {
    if (is_prime(q)) return q;
  }
  return 0;
}

// The smallest such prime; 2^(bits - 1) is a multiple of 2 * degree.
inline std::uint64_t smallest_ntt_prime(unsigned bits, std::size_t degree) {
  const std::uint64_t least = std::uint64_t{1} << (bits - 1);
  for (std::uint64_t q = least + 1; q < 2 * least; q += 2 * degree) {
    if (is_prime(q)) return q;
  }
  return 0;
}

inline std::vector<std::uint64_t> random_residues(std::size_t count, std::uint64_t q,
                                                  std::mt19937_64& generator) {
  std::uniform_int_distribution<std::uint64_t> distribution(0, q - 1);
  std::vector<std::uint64_t> row(count);
  for (std::uint64_t& value : row) value = distribution(generator);
  return row;
}

// Rows that take lazy arithmetic to its limits, then random ones.
inline std::vector<std::vector<std::uint64_t>> residue_rows(std::size_t count, std::uint64_t q,
                                                            std::mt19937_64& generator) {
  std::vector<std::vector<std::uint64_t>> rows;
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, q / 2, q / 2 + 1, q - 2, q - 1}) {
    rows.emplace_back(count, value);
  }
  // Either of two values everywhere: with period 2, 4, ..., and at random.
  std::vector<std::uint64_t> row(count);
  for (std::size_t period = 2; period <= count; period *= 2) {
    for (std::size_t i = 0; i < count; ++i) row[i] = i % period < period / 2 ? 0 : q - 1;
    rows.push_back(row);
  }
  for (int repeat = 0; repeat < 4; ++repeat) {
    for (std::uint64_t& value : row) value = (generator() & 1) != 0 ? q - 1 : 0;
    rows.push_back(row);
    rows.push_back(random_residues(count, q, generator));
  }
  return rows;
}

}  // namespace shieldfl::tests
