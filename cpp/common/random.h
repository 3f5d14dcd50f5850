// Randomness: seeds come from the operating system, streams are ChaCha20 (RFC 8439) under such a seed.
//
// Every batch draws one fresh seed, and block b of the batch reads stream b of that seed. So the result
// does not depend on the number of threads, and there is no generator state that a fork could duplicate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/chacha20_kernels.h"
#include "common/verify.h"

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
// counter that begins at `first_block` and ends with 2^32 - 1; blocks have 64 bytes. Reading past the end
// throws Error(kInternal) and consumes nothing. Constant-time. However it is read, the bytes come in the
// stream's order.
class RandomStream {
 public:
  RandomStream(const Seed& seed, std::uint64_t stream_index, std::uint32_t first_block = 0);
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;
  ~RandomStream();

  void fill(std::span<std::uint8_t> out);
  std::uint64_t next_u64();

  // The most words that peek_words can be asked for.
  static constexpr std::size_t kMaxPeekWords = 512;

  // The stream's next words without a copy, valid until the next call that is not consume_words: `least` of
  // them or more. `wanted` is how many the caller will read in all, by this call and later ones: the stream
  // then computes about that many ahead, though never more than kMaxPeekWords.
  std::span<const std::uint64_t> peek_words(std::size_t least, std::size_t wanted);
  // Goes on behind the first `count` words that were peeked.
  void consume_words(std::size_t count) {
    VERIFY(count * sizeof(std::uint64_t) <= end_ - begin_);
    begin_ += count * sizeof(std::uint64_t);
  }

 private:
  static constexpr std::size_t kBlockWords = kChaCha20BlockBytes / sizeof(std::uint64_t);
  static constexpr std::size_t kBlocksAtOnce = 16;  // of the widest kernel

  std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(buffer_.data()); }
  void require(std::uint64_t size) const;
  void generate(std::size_t blocks, std::uint8_t* out);
  void refill();

  const ChaCha20Kernels& kernels_;
  std::array<std::uint32_t, 16> state_;
  std::uint64_t blocks_left_;
  std::size_t refill_blocks_ = 1;
  // Unread bytes are from begin_ to end_; what lies beyond used_ was never written.
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t used_ = 0;
  alignas(64) std::array<std::uint64_t, kMaxPeekWords + kBlocksAtOnce * kBlockWords> buffer_;
};

// A random identifier: unique, not secret.
std::array<std::uint8_t, 16> random_id(SeedSource& source);

}  // namespace shieldfl
