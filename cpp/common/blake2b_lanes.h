// BLAKE2b's compression of as many messages as a vector has 64-bit lanes, for the blake2b_kernels_*.cpp files
// alone: all in an unnamed namespace, so that the linker never keeps the copy that needs a newer processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/blake2b_kernels.h"

namespace shieldfl {
namespace {

constexpr std::size_t kStateWords = 8;
constexpr std::size_t kMessageWords = 16;
constexpr std::size_t kLeafDigestBytes = 32;

// RFC 7693, sections 2.6 and 2.7.
constexpr std::uint64_t kInitial[kStateWords] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                                 0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                                 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
constexpr std::uint8_t kSchedule[10][kMessageWords] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
constexpr std::size_t kRounds = 12;

// `Lanes`: a Vector of kLanes words with +, ^ and so on; broadcast(word); rotate_right<bits>(vector); and
// load_block(where each lane's block begins, the 16 vectors of its words).
template <typename Lanes>
struct Compression {
  using Vector = typename Lanes::Vector;

  static void mix(Vector& a, Vector& b, Vector& c, Vector& d, Vector x, Vector y) {
    a += b + x;
    d = Lanes::template rotate_right<32>(d ^ a);
    c += d;
    b = Lanes::template rotate_right<24>(b ^ c);
    a += b + y;
    d = Lanes::template rotate_right<16>(d ^ a);
    c += d;
    b = Lanes::template rotate_right<63>(b ^ c);
  }

  // One block of each lane's message. `length`: of what has been hashed with it, in bytes.
  static void block(Vector* state, const Vector* message, std::uint64_t length, bool last) {
    Vector v[2 * kStateWords];
    for (std::size_t i = 0; i < kStateWords; ++i) {
      v[i] = state[i];
      v[kStateWords + i] = Lanes::broadcast(kInitial[i]);
    }
    v[12] ^= Lanes::broadcast(length);
    if (last) v[14] = ~v[14];
    const auto mix_all = [&](const std::uint8_t* order) {
      mix(v[0], v[4], v[8], v[12], message[order[0]], message[order[1]]);
      mix(v[1], v[5], v[9], v[13], message[order[2]], message[order[3]]);
      mix(v[2], v[6], v[10], v[14], message[order[4]], message[order[5]]);
      mix(v[3], v[7], v[11], v[15], message[order[6]], message[order[7]]);
      mix(v[0], v[5], v[10], v[15], message[order[8]], message[order[9]]);
      mix(v[1], v[6], v[11], v[12], message[order[10]], message[order[11]]);
      mix(v[2], v[7], v[8], v[13], message[order[12]], message[order[13]]);
      mix(v[3], v[4], v[9], v[14], message[order[14]], message[order[15]]);
    };
    if constexpr (Lanes::kLanes == 1) {
      // Where looking up which word comes next takes as long as mixing it in.
#pragma GCC unroll 12
      for (std::size_t round = 0; round < kRounds; ++round) mix_all(kSchedule[round % 10]);
    } else {
      for (std::size_t round = 0; round < kRounds; ++round) mix_all(kSchedule[round % 10]);
    }
    for (std::size_t i = 0; i < kStateWords; ++i) state[i] ^= v[i] ^ v[kStateWords + i];
  }
};

template <typename Lanes>
void hash_leaves(const std::uint64_t* parameters, const std::uint8_t* data, std::size_t leaf_bytes,
                 std::size_t leaves, std::uint8_t* digests) {
  using Vector = typename Lanes::Vector;
  constexpr std::size_t kLanes = Lanes::kLanes;
  for (std::size_t first = 0; first < leaves; first += kLanes) {
    const std::size_t here = leaves - first < kLanes ? leaves - first : kLanes;
    const std::uint8_t* places[kLanes];
    std::uint64_t numbers[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      // Lanes that are left over hash the first leaf once more, for nobody.
      const std::size_t leaf = first + (lane < here ? lane : 0);
      places[lane] = data + leaf * leaf_bytes;
      numbers[lane] = parameters[1] + leaf;
    }
    Vector state[kStateWords];
    for (std::size_t i = 0; i < kStateWords; ++i) {
      state[i] = Lanes::broadcast(kInitial[i] ^ (i == 1 ? 0 : parameters[i]));
    }
    Vector number;
    __builtin_memcpy(&number, numbers, sizeof number);
    state[1] ^= number;
    for (std::size_t done = kBlake2bBlockBytes; done <= leaf_bytes; done += kBlake2bBlockBytes) {
      Vector message[kMessageWords];
      Lanes::load_block(places, message);
      for (const std::uint8_t*& place : places) place += kBlake2bBlockBytes;
      Compression<Lanes>::block(state, message, done, done == leaf_bytes);
    }
    for (std::size_t word = 0; word < kLeafDigestBytes / sizeof(std::uint64_t); ++word) {
      __builtin_memcpy(numbers, &state[word], sizeof number);
      for (std::size_t lane = 0; lane < here; ++lane) {
        __builtin_memcpy(digests + (first + lane) * kLeafDigestBytes + word * sizeof numbers[0],
                         &numbers[lane], sizeof numbers[0]);
      }
    }
  }
}

}  // namespace
}  // namespace shieldfl
