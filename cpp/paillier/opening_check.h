// Whether ciphertexts were opened without a fault of the machine. An answer that is right modulo one factor
// of n and wrong modulo the other gives that factor to whoever knows the right one (Boneh, DeMillo and
// Lipton 1997), so nothing leaves before this has passed.
//
// One more ciphertext is opened than was asked for: the product of a fresh one, of a known random number r,
// and of each opened c_i to the power of a random e_i of 64 bits. It is made from public numbers modulo n^2,
// and so apart from all that is computed modulo p^2 and q^2; its plaintext has to be r + sum of e_i m_i
// modulo n. Where some m_i is wrong modulo p, one e_i in p at most makes up for it whatever the others are: a
// fault in a single opening passes with probability 2^-63 at most (small exponents: Bellare, Garay and Rabin
// 1998). So does a fault in one step of the check. And a damaged key, whose answers are wrong in the same way
// each time, would have to open the number r, which it sees for the first time, and never again, right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "common/random.h"
#include "common/secure_memory.h"
#include "paillier/public_key.h"

namespace shieldfl::paillier {

// What SecretKey::decrypt does: residues become plaintexts.
using Decrypt =
    std::function<void(std::span<const std::uint64_t> residues, std::span<std::uint64_t> plaintexts)>;

// For one thread. Refers to the key, which must outlive it. Constant-time in the plaintexts, but for the
// verdict.
class OpeningCheck {
 public:
  explicit OpeningCheck(const PublicKey& key);

  // Up to SecretKey::kBatchSize ciphertexts (ciphertext_words() each) and what they were opened to
  // (modulus_words() each).
  void add(std::span<const std::uint64_t> residues, std::span<const std::uint64_t> plaintexts);
  // Whether all that was added was opened right. Asked once, at the end.
  [[nodiscard]] bool passes(const Decrypt& decrypt) const;

 private:
  void add_row(std::span<const std::uint64_t> residues, std::span<const std::uint64_t> plaintexts);

  const PublicKey& key_;
  RandomStream random_;
  // As many products side by side as the engine computes in the time of one.
  std::size_t lanes_;
  SecretVector<std::uint64_t> products_;  // pairs
  SecretVector<std::uint64_t> sums_;      // not reduced: modulus_words() + 2 words each
};

}  // namespace shieldfl::paillier
