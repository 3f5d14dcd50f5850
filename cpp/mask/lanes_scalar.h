// Two words at a time in the compiler's portable vectors: what every processor has in some form.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shieldfl::mask {
namespace {

struct ScalarLanes {
  using Vector = std::uint64_t __attribute__((vector_size(16)));
  static constexpr std::size_t kWords = 2;

  static Vector zero() { return Vector{}; }
  static Vector load(const std::uint64_t* from) { return Vector{from[0], from[1]}; }
  static void store(std::uint64_t* to, Vector v) {
    to[0] = v[0];
    to[1] = v[1];
  }
  // The first `words` words, fewer than kWords; zeros for the others.
  static Vector load_some(const std::uint64_t* from, std::size_t words) {
    return words == 0 ? Vector{} : Vector{from[0], 0};
  }
  static void store_some(std::uint64_t* to, Vector v, std::size_t words) {
    if (words != 0) to[0] = v[0];
  }

  static Vector parity(Vector a, Vector b, Vector c) { return a ^ b ^ c; }
  static Vector majority(Vector a, Vector b, Vector c) { return (a & b) | ((a ^ b) & c); }
  static bool any(Vector v) { return (v[0] | v[1]) != 0; }

  // The number of set bits per word.
  static Vector count(Vector v) {
    v -= (v >> 1) & 0x5555555555555555;
    v = (v & 0x3333333333333333) + ((v >> 2) & 0x3333333333333333);
    v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0f;
    v += v >> 8;
    v += v >> 16;
    v += v >> 32;
    return v & 0x7f;
  }
  static std::uint64_t total(Vector v) { return v[0] + v[1]; }
};

}  // namespace
}  // namespace shieldfl::mask
