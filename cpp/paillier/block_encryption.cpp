#include "paillier/block_encryption.h"

#include "common/taint.h"
#include "paillier/ciphertext.h"
#include "paillier/packing.h"
#include "paillier/randomizers.h"

namespace shieldfl::paillier {

BlockEncryption::BlockEncryption(const PublicKey& key, const Seed& seed, RandomizerPool* pool,
                                 bool lookups_vartime)
    : key_(key), seed_(seed), pool_(pool), lookups_vartime_(lookups_vartime) {}

void BlockEncryption::encrypt(std::uint64_t first, std::span<const std::int64_t> fields,
                              std::span<std::uint8_t> out) {
  const Parameters& parameters = key_.parameters();
  const Engine& engine = key_.engine();
  const std::size_t capacity = parameters.values_per_ciphertext();
  const std::size_t count = fields.size() / capacity;
  plaintexts_.resize(count * engine.words());
  for (std::size_t i = 0; i < count; ++i) {
    pack_values(parameters, fields.subspan(i * capacity, capacity), key_.modulus(),
                std::span(plaintexts_).subspan(i * engine.words(), engine.words()));
  }

  pairs_.resize(count * engine.pair_words());
  const std::size_t taken = pool_ == nullptr ? 0 : pool_->take(pairs_);
  if (taken < count) {
    make_randomizers(key_, seed_, first + taken, lookups_vartime_,
                     std::span(pairs_).subspan(taken * engine.pair_words()));
  }
  engine.add_plaintexts(plaintexts_, pairs_);
  engine.to_residues(pairs_, pairs_);
  write_residues(parameters, pairs_, out);
  // A ciphertext goes to the aggregator; before that, its checksum is taken by table look-ups.
  declassify(out.data(), out.size());
}

}  // namespace shieldfl::paillier
