#include "ckks/encryptor.h"

#include <algorithm>
#include <mutex>

#include "ckks/block_encryption.h"
#include "ckks/ciphertext.h"
#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/taint.h"
#include "mask/rank_index.h"
#include "parallel/parallel_for.h"
#include "scheme/field_reader.h"

namespace shieldfl::ckks {
Encryptor::Encryptor(std::shared_ptr<const PublicKey> key) : key_(std::move(key)) {}

Layout Encryptor::layout(std::uint64_t size, const mask::Bitset* mask, bool weighted) const {
  if (mask != nullptr) mask::check_same_size(mask->size(), size);
  Layout layout;
  layout.parameter_id = key_->parameters()->id();
  layout.key_id = key_->id();
  layout.value_count = mask != nullptr ? mask->count() : size;
  layout.weighted = weighted;
  return layout;
}

std::size_t Encryptor::frame_bytes(std::uint64_t size, const mask::Bitset* mask, bool weighted) const {
  return ciphertext_frame_bytes(FrameKind::kCkksBatch, key_->parameters()->facts(),
                                layout(size, mask, weighted), 1);
}

template <typename T>
scheme::ValueCounts Encryptor::encrypt(std::span<const T> values, const mask::Bitset* mask,
                                       const EncryptOptions& options, SeedSource& seeds,
                                       std::span<std::uint8_t> frame) const {
  const ParameterFacts& facts = key_->parameters()->facts();
  Layout layout = this->layout(values.size(), mask, options.weight.has_value());
  const scheme::FixedPoint fixed_point = facts.fixed_point();
  std::optional<std::int64_t> weight;
  if (options.weight) weight = fixed_point.quantise_weight(*options.weight);
  layout.round = options.round;
  layout.mask_id = scheme::mask_id(values.size(), mask);
  std::optional<mask::RankIndex> ranks;
  if (mask != nullptr && mask->count() != mask->size()) ranks.emplace(*mask, options.threads);

  const Id frame_id = random_id(seeds);
  const Seed seed = seeds.next();
  FrameWriter writer = begin_frame(FrameKind::kCkksBatch, facts, layout, {&frame_id, 1}, frame);
  const std::uint32_t head_checksum = crc32c(writer.written());
  const std::size_t blocks = block_count(facts, layout);
  const std::size_t threads = threads_for(options.threads, blocks, kBlocksWorthEncrypting);
  const std::size_t block_bytes = facts.format(FrameKind::kCkksBatch).bytes();
  const auto payload = writer.reserve(blocks * block_bytes);

  ChecksumParts checksums(threads);
  std::mutex result_mutex;
  scheme::ValueCounts counts;
  std::uint64_t refused = scheme::ValueReader<T>::kNone;
  parallel_for(blocks, threads, 1, [&](std::size_t begin, std::size_t end) {
    scheme::FieldReader<T> reader(values, ranks ? &*ranks : nullptr, fixed_point, layout, weight,
                                  options.clip);
    BlockEncryption encryption(*key_);
    SecretVector<std::int64_t> integers(facts.values_per_block());
    std::uint32_t checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      const std::size_t count = reader.read(block, integers);
      // Nothing of this batch will be sent; the rest is read for a lower position to name.
      if (reader.reader().refused_position != scheme::ValueReader<T>::kNone) continue;

      RandomStream stream(seed, block);
      const auto out = payload.subspan(block * block_bytes, block_bytes);
      encryption.encrypt(stream, integers, count, out);
      checksum = crc32c(out, checksum);
    }
    checksums.add(begin, checksum, (end - begin) * block_bytes);
    const std::lock_guard lock(result_mutex);
    counts += reader.reader().counts;
    refused = std::min(refused, reader.reader().refused_position);
  });
  if (refused != scheme::ValueReader<T>::kNone)
    scheme::refuse_value(fixed_point, refused, static_cast<double>(values[refused]));
  writer.finish(checksums.after(head_checksum));
  // The client's own figures, for itself.
  declassify(&counts, sizeof counts);
  return counts;
}

template scheme::ValueCounts Encryptor::encrypt(std::span<const float>, const mask::Bitset*,
                                                const EncryptOptions&, SeedSource&,
                                                std::span<std::uint8_t>) const;
template scheme::ValueCounts Encryptor::encrypt(std::span<const double>, const mask::Bitset*,
                                                const EncryptOptions&, SeedSource&,
                                                std::span<std::uint8_t>) const;

}  // namespace shieldfl::ckks
