// Randomness: seeds come from the operating system, streams are ChaCha20 (RFC 8439) under such a seed.
//
// Every batch draws one fresh seed, and block b of the batch reads stream b of that seed. So the result
// does not depend on the number of threads, and there is no generator state that a fork could duplicate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shieldfl {

inline constexpr std::size_t kSeedBytes = 32;

// A 256-bit key, wiped on destruction.
struct Seed {
  std::array<std::uint8_t, kSeedBytes> bytes{};

  Seed() = default;
  Seed(const Seed&) = default;
  Seed& operator=(const Seed&) = default;
  ~Seed();
};

class SeedSource {
 public:
  virtual ~SeedSource() = default;
  // A seed that has not been returned before. Throws Error(kInternal) when no randomness can be had.
  virtual Seed next() = 0;
};

// getrandom(2). Stateless: safe after fork and from any thread.
class SystemSeedSource final : public SeedSource {
 public:
  Seed next() override;
};

// Predictable seeds, for tests and known-answer vectors alone: seed i is `first_seed` and i, little-endian.
// Not thread-safe. Nothing in the public Python API can reach it.
class InsecureTestRandom final : public SeedSource {
 public:
  explicit InsecureTestRandom(std::uint64_t first_seed) : first_seed_(first_seed) {}
  Seed next() override;

 private:
  std::uint64_t first_seed_;
  std::uint64_t drawn_ = 0;
};

// The key stream of ChaCha20 with key `seed`, nonce (0, stream_index as 64 bits, little-endian) and a block
// counter from 0: up to 2^32 blocks of 64 bytes. Throws Error(kInternal) past the end. Constant-time.
class RandomStream {
 public:
  RandomStream(const Seed& seed, std::uint64_t stream_index);
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;
  ~RandomStream();

  void fill(std::span<std::uint8_t> out);
  std::uint64_t next_u64();

 private:
  void refill();

  std::array<std::uint32_t, 16> state_;
  std::array<std::uint8_t, 64> block_{};
  std::size_t used_ = 64;
  bool exhausted_ = false;
};

// A random identifier: unique, not secret.
std::array<std::uint8_t, 16> random_id(SeedSource& source);

}  // namespace shieldfl
