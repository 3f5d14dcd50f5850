// One ciphertext: (public0 u + e0 + message, public1 u + e1), in coefficient form.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "ckks/keys.h"
#include "common/random.h"
#include "common/secure_memory.h"

namespace shieldfl::ckks {

// Adds the message to one row of coefficient residues, for prime number `prime_index`.
using AddMessage = std::function<void(std::size_t prime_index, std::span<std::uint64_t> row)>;

// A thread's scratch space, reused from block to block and wiped in the end.
class BlockEncryption {
 public:
  explicit BlockEncryption(const PublicKey& key);

  // Draws u, e0 and e1 from `stream`, in this order, and returns block_words() residues, valid until the
  // next call. Constant-time in u, e0 and e1.
  std::span<const std::uint64_t> encrypt(RandomStream& stream, const AddMessage& add_message);

 private:
  const PublicKey& key_;
  SecretVector<std::int8_t> u_;
  SecretVector<std::int8_t> e0_;
  SecretVector<std::int8_t> e1_;
  SecretVector<std::uint64_t> transformed_u_;
  SecretVector<std::uint64_t> rows_;
};

}  // namespace shieldfl::ckks
