// One ciphertext, from integers to bytes: (public0 u + e0 + message, public1 u + e1), as digits on the wire.
#pragma once

#include <cstdint>
#include <span>

#include "ckks/keys.h"
#include "common/random.h"
#include "common/secure_memory.h"
#include "ring/row_kernels.h"
#include "rlwe/field_packing.h"

namespace shieldfl::ckks {

// A thread's scratch space, reused from block to block and wiped in the end. Refers to the key.
class BlockEncryption {
 public:
  explicit BlockEncryption(const PublicKey& key);

  // Draws u, e0 and e1 from `stream`, in this order. `values`: values_per_block() integers of at most
  // max_magnitude() in magnitude, zero from number `count` on. `out`: the block's bytes in a batch.
  // Constant-time in u, e0 and e1, and in exact packing in the values.
  void encrypt(RandomStream& stream, std::span<const std::int64_t> values, std::size_t count,
               std::span<std::uint8_t> out);

 private:
  void transform_message(std::span<const std::int64_t> values);
  void encrypt_prime(std::size_t p, std::span<const std::int64_t> values, std::size_t count);

  const PublicKey& key_;
  const Parameters& parameters_;
  const ring::RowKernels& kernels_;
  rlwe::FieldPacking packing_;
  packed::BlockFormat format_;
  SecretVector<std::int8_t> u_;
  SecretVector<std::int8_t> e0_;
  SecretVector<std::int8_t> e1_;
  SecretVector<std::uint64_t> transformed_u_;
  SecretVector<std::uint64_t> rows_;     // c0 then c1, a row for each prime
  SecretVector<std::uint64_t> message_;  // slots: in NTT form, a row for each prime
};

}  // namespace shieldfl::ckks
