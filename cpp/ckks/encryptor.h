// Public-key encryption of masked updates: gather, quantise, pack and encrypt, block by block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ckks/keys.h"
#include "common/random.h"
#include "mask/bitset.h"

namespace shieldfl::ckks {

struct EncryptOptions {
  std::uint64_t round = 0;
  // Scales the update and travels, encrypted, beside it; rounded to a multiple of 2^-fraction_bits. Positive.
  std::optional<double> weight;
  bool clip = false;        // saturate what is out of range, and count it, instead of refusing it
  std::size_t threads = 0;  // 0: all cores
};

struct EncryptedBatch {
  std::vector<std::uint8_t> frame;
  std::uint64_t clipped = 0;  // values that were saturated
};

class Encryptor {
 public:
  explicit Encryptor(std::shared_ptr<const PublicKey> key);

  // Encrypts the values at the mask's positions, ascending (all of them without a mask; possibly none).
  // T is float or double. Throws Error(kParameter) for a mask of another size or a weight that is not
  // positive, Error(kRange) that names the lowest position whose value is NaN, infinite or, unless `clip`,
  // out of range; nothing has been encrypted then that is of any use to anybody. The result depends on the
  // seed and the values alone, not on the number of threads.
  template <typename T>
  [[nodiscard]] EncryptedBatch encrypt(std::span<const T> values, const mask::Bitset* mask,
                                       const EncryptOptions& options, SeedSource& seeds) const;

  [[nodiscard]] const PublicKey& key() const { return *key_; }

 private:
  std::shared_ptr<const PublicKey> key_;
};

// The identifier of a set of positions: equal for a full mask and for none.
Id mask_id(std::uint64_t size, const mask::Bitset* mask);

}  // namespace shieldfl::ckks
