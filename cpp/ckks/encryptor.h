// Public-key encryption of masked updates: gather, quantise, pack and encrypt, block by block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "ckks/ciphertext.h"
#include "ckks/keys.h"
#include "common/random.h"
#include "mask/bitset.h"
#include "scheme/value_pieces.h"
#include "scheme/value_reader.h"

namespace shieldfl::ckks {

struct EncryptOptions {
  std::uint64_t round = 0;
  // Scales the update and travels, encrypted, beside it; rounded to a multiple of the weights' step.
  // Positive.
  std::optional<double> weight;
  bool clip = false;        // saturate what is out of range, and count it, instead of refusing it
  std::size_t threads = 0;  // 0: as many as the work is worth
};

class Encryptor {
 public:
  explicit Encryptor(std::shared_ptr<const PublicKey> key);

  // The length of the frame that encrypt writes. `size`: of the update. Throws Error(kParameter) for a mask
  // of another size.
  [[nodiscard]] std::size_t frame_bytes(std::uint64_t size, const mask::Bitset* mask, bool weighted) const;

  // Encrypts the values at the mask's positions, ascending (all of them without a mask; possibly none), into
  // `frame`, which has frame_bytes(...) bytes. T is float or double.
  // Throws Error(kParameter) for a mask of another size or a weight that is not positive, Error(kRange) that
  // names the lowest position whose value is NaN, infinite or, unless `clip`, out of range; what `frame` then
  // holds is of no use to anybody. The result depends on the seed and the values alone, not on the number of
  // threads.
  template <typename T>
  scheme::ValueCounts encrypt(const scheme::ValuePieces<T>& values, const mask::Bitset* mask,
                              const EncryptOptions& options, SeedSource& seeds,
                              std::span<std::uint8_t> frame) const;

 private:
  // All but the round and the mask's id. Throws Error(kParameter) for a mask of another size.
  [[nodiscard]] Layout layout(std::uint64_t size, const mask::Bitset* mask, bool weighted) const;

  std::shared_ptr<const PublicKey> key_;
};

}  // namespace shieldfl::ckks
