// Encryption of masked updates under a client's own pads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/random.h"
#include "common/secure_memory.h"
#include "enrolled/encryptor.h"
#include "pads/ciphertext.h"
#include "pads/pad_stream.h"

namespace shieldfl::pads {

using enrolled::EncryptOptions;

// A thread's start is worth so many blocks, of about 1 us each where the processor has AVX-512.
inline constexpr std::size_t kBlocksWorthAThread = 256;

// How a frame is encrypted. Refers to the key.
class BlockEncryption {
 public:
  static constexpr std::size_t kBlocksWorthAThread = pads::kBlocksWorthAThread;

  // `frame_seeds`: of the frame's pads, one for each authority. No further randomness is needed.
  BlockEncryption(const PublicKey& key, std::vector<Seed> frame_seeds, SeedSource& seeds);

  // A thread's scratch space, reused from block to block and wiped in the end. Refers to what made it.
  class Thread {
   public:
    explicit Thread(const BlockEncryption& frame);

    // Encrypts block number `block`: kBlockWords integers, zero behind the values. `out`: the block's bytes.
    // Constant-time in pads and values.
    void operator()(std::size_t block, std::span<const std::int64_t> values, std::size_t count,
                    std::span<std::uint8_t> out);

   private:
    const BlockEncryption& frame_;
    packed::BlockFormat format_;
    PadAdder pads_;
    SecretVector<std::uint64_t> words_;
  };

  [[nodiscard]] Thread thread() const { return Thread(*this); }

 private:
  const PublicKey& key_;
  std::vector<Seed> frame_seeds_;
};

using Encryptor = enrolled::Encryptor<PublicKey, BlockEncryption>;

}  // namespace shieldfl::pads
