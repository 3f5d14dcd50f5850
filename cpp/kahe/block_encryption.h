// One ciphertext, from integers to bytes: a s + e + message, as digits on the wire.
#pragma once

#include <cstdint>
#include <span>

#include "common/random.h"
#include "common/secure_memory.h"
#include "kahe/public_key.h"
#include "ring/row_kernels.h"
#include "rlwe/field_packing.h"

namespace shieldfl::kahe {

// A thread's scratch space, reused from block to block and wiped in the end. Refers to the key.
class BlockEncryption {
 public:
  BlockEncryption(const PublicKey& key, const Seed& frame_seed);

  // Encrypts block number `block`, drawing e from `stream`. `values`: an integer for each coefficient and
  // field, as rlwe::FieldPacking takes them, `count` of them values. `out`: the block's bytes in a batch.
  // Constant-time in secrets, errors and values.
  void encrypt(std::size_t block, RandomStream& stream, std::span<const std::int64_t> values,
               std::size_t count, std::span<std::uint8_t> out);

 private:
  void use_secret(std::size_t v);

  const PublicKey& key_;
  const Parameters& parameters_;
  const ring::RowKernels& kernels_;
  Seed frame_seed_;
  rlwe::FieldPacking packing_;
  rlwe::BlockFormat format_;
  std::size_t secret_number_;  // of what is in `secret_`
  std::vector<ring::PreparedRow> secret_;
  SecretVector<std::int8_t> samples_;
  SecretVector<std::int8_t> scratch_;
  SecretVector<std::uint64_t> rows_;
};

}  // namespace shieldfl::kahe
