#include "common/digest.h"

#include <seal/util/hash.h>

#include <cstring>

#include "common/secure_memory.h"

namespace shieldfl {

Id digest(std::span<const std::uint8_t> data) {
  // SEAL's hash takes words: pad, and add the length so that the padding is unambiguous.
  // Keyed digests are made of secrets, so the copy is wiped.
  SecretVector<std::uint64_t> words((data.size() + 7) / 8 + 1, 0);
  if (!data.empty()) std::memcpy(words.data(), data.data(), data.size());
  words.back() = data.size();
  seal::util::HashFunction::hash_block_type block{};
  seal::util::HashFunction::hash(words.data(), words.size(), block);
  Id id;
  std::memcpy(id.data(), block.data(), id.size());
  secure_wipe(block.data(), sizeof block);
  return id;
}

}  // namespace shieldfl
