// Public-key encryption of masked updates: gather, quantise, pack and encrypt, some ciphertexts at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "common/random.h"
#include "mask/bitset.h"
#include "paillier/ciphertext.h"
#include "paillier/keys.h"
#include "paillier/randomizer_pool.h"
#include "paillier/union_order.h"
#include "scheme/value_pieces.h"
#include "scheme/value_reader.h"

namespace shieldfl::paillier {

struct EncryptOptions {
  std::uint64_t round = 0;
  // Scales the update and travels, encrypted, beside it; rounded to a multiple of the weights' step.
  // Positive.
  std::optional<double> weight;
  bool clip = false;        // saturate what is out of range, and count it, instead of refusing it
  std::size_t threads = 0;  // 0: all cores
  // Look table entries up by address: faster, but who shares the processor's caches may learn the
  // randomisers, and with them the update.
  bool lookups_vartime = false;
};

class Encryptor {
 public:
  explicit Encryptor(std::shared_ptr<const PublicKey> key);

  // The length of the frame that encrypt writes. `size`: of the update. Throws Error(kParameter) for a mask
  // of another size.
  [[nodiscard]] std::size_t frame_bytes(std::uint64_t size, const mask::Bitset* mask, bool weighted) const;

  // Encrypts the values at the mask's positions, ascending (all of them without a mask; possibly none), into
  // `frame`, which has frame_bytes(...) bytes. T is float or double.
  // Takes randomisers from `pool`, where there is one, as long as it has any. Throws Error(kParameter) for a
  // mask of another size or a weight that is not positive, Error(kRange) that names the lowest position whose
  // value is NaN, infinite or, unless `clip`, out of range; what `frame` then holds is of no use to anybody.
  // Without a pool the result depends on the seed and the values alone, not on the number of threads.
  template <typename T>
  scheme::ValueCounts encrypt(const scheme::ValuePieces<T>& values, const mask::Bitset* mask,
                              const EncryptOptions& options, SeedSource& seeds, RandomizerPool* pool,
                              std::span<std::uint8_t> frame) const;

  // The same for one client of a group whose masks differ: packed in the order of the group's union, with
  // zeros where this client's mask does not select; ciphertexts that would be all zero are left out. Throws
  // Error(kParameter) for a mask of another size than the order's or with a position outside of it, and for
  // an encrypted weight.
  [[nodiscard]] std::size_t union_frame_bytes(const UnionOrder& order, const mask::Bitset& mask) const;
  template <typename T>
  scheme::ValueCounts encrypt_in_union(std::span<const T> values, const UnionOrder& order,
                                       const mask::Bitset& mask, const EncryptOptions& options,
                                       SeedSource& seeds, RandomizerPool* pool,
                                       std::span<std::uint8_t> frame) const;

 private:
  // All but the round and the mask's id.
  [[nodiscard]] Layout layout(std::uint64_t value_count, bool weighted) const;

  std::shared_ptr<const PublicKey> key_;
};

}  // namespace shieldfl::paillier
