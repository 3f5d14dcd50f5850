// The ciphertexts of a sum, each a pair (engine.h) in the memory of one residue.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "mask/word_vector.h"
#include "paillier/ciphertext.h"
#include "paillier/keys.h"

namespace shieldfl::paillier {

// Not to be changed while another thread uses it.
class CiphertextSums {
 public:
  // Nothing at all.
  CiphertextSums() = default;
  CiphertextSums(std::shared_ptr<const PublicKey> key, std::size_t blocks);

  // Adds a frame `weight` times, whose residues were checked, and which has as many ciphertexts.
  void add(const CiphertextView& view, std::uint32_t weight, std::size_t threads);
  // Adds quantised values in the clear `weight` times, one for each field in order; they are within what a
  // field of the parameters takes.
  void add_clear(std::span<const std::int64_t> values, std::uint32_t weight, std::size_t threads);

  // Writes the payload of a total and returns its checksum, after that of `head_checksum`. What nothing was
  // added to becomes the residue 1, an encryption of zero that hides nothing, for there is nothing to hide.
  [[nodiscard]] std::uint32_t write(std::span<std::uint8_t> payload, std::uint32_t head_checksum,
                                    std::size_t threads) const;

 private:
  class Gathered;

  // Writes the pair of one ciphertext, 1 where nothing was added.
  void copy_pair(std::size_t block, std::span<std::uint64_t> out) const;

  std::shared_ptr<const PublicKey> key_;
  std::size_t blocks_ = 0;
  mask::WordVector pairs_;
  mask::WordVector used_;  // a bit for each ciphertext that something was added to
};

}  // namespace shieldfl::paillier
