// One ciphertext, from integers to bytes: a s + e + message, as digits on the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/random.h"
#include "common/secure_memory.h"
#include "kahe/public_key.h"
#include "ring/row_kernels.h"
#include "rlwe/field_packing.h"
#include "rlwe/packed_digits.h"

namespace shieldfl::kahe {

// How a frame is encrypted. Refers to the key.
class BlockEncryption {
 public:
  static constexpr std::size_t kBlocksWorthAThread = rlwe::kBlocksWorthEncrypting;

  // `frame_seeds`: of the frame's secrets, one for each authority; s is the sum of what they give. The
  // seed of the errors comes from `seeds`.
  BlockEncryption(const PublicKey& key, std::vector<Seed> frame_seeds, SeedSource& seeds);

  // A thread's scratch space, reused from block to block and wiped in the end. Refers to what made it.
  class Thread {
   public:
    explicit Thread(const BlockEncryption& frame);

    // Encrypts block number `block`. `values`: an integer for each coefficient and field, as
    // rlwe::FieldPacking takes them, `count` of them values. `out`: the block's bytes in a batch.
    // Constant-time in secrets, errors and values.
    void operator()(std::size_t block, std::span<const std::int64_t> values, std::size_t count,
                    std::span<std::uint8_t> out);

   private:
    void use_secret(std::size_t v);

    const BlockEncryption& frame_;
    const Parameters& parameters_;
    const ring::RowKernels& kernels_;
    rlwe::FieldPacking packing_;
    packed::BlockFormat format_;
    std::size_t secret_number_;  // of what is in `secret_`
    std::vector<ring::PreparedRow> secret_;
    SecretVector<std::int8_t> samples_;
    SecretVector<std::int8_t> scratch_;
    SecretVector<std::uint64_t> rows_;
  };

  [[nodiscard]] Thread thread() const { return Thread(*this); }

 private:
  const PublicKey& key_;
  std::vector<Seed> frame_seeds_;
  Seed error_seed_;
};

}  // namespace shieldfl::kahe
