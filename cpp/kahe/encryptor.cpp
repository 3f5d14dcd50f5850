#include "kahe/encryptor.h"

#include <algorithm>
#include <mutex>

#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/error.h"
#include "common/taint.h"
#include "kahe/block_encryption.h"
#include "mask/rank_index.h"
#include "parallel/parallel_for.h"
#include "scheme/field_reader.h"

namespace shieldfl::kahe {

Encryptor::Encryptor(std::shared_ptr<const PublicKey> key) : key_(std::move(key)) {}

FrameHead Encryptor::head(std::uint64_t size, const mask::Bitset* mask, bool weighted) const {
  if (mask != nullptr) mask::check_same_size(mask->size(), size);
  FrameHead head{key_->parameters()->facts(), {}, {}, 0, {Participant{}}};
  head.layout.parameter_id = key_->parameters()->id();
  head.layout.key_id = key_->id();
  head.layout.value_count = mask != nullptr ? mask->count() : size;
  head.layout.weighted = weighted;
  return head;
}

std::size_t Encryptor::frame_bytes(std::uint64_t size, const mask::Bitset* mask, bool weighted) const {
  return ciphertext_frame_bytes(FrameKind::kKaheBatch, head(size, mask, weighted));
}

template <typename T>
scheme::ValueCounts Encryptor::encrypt(const ClientKey& client_key, std::span<const T> values,
                                       const mask::Bitset* mask, const EncryptOptions& options,
                                       SeedSource& seeds, std::span<std::uint8_t> frame) const {
  if (client_key.key_id() != key_->id()) {
    throw Error(ErrorCode::kKeyMismatch, "the client's key is of another session than the public key");
  }
  const ParameterFacts& facts = key_->parameters()->facts();
  const scheme::FixedPoint fixed_point = facts.fixed_point();
  std::optional<std::int64_t> weight;
  if (options.weight) weight = fixed_point.quantise_weight(*options.weight);
  FrameHead head = this->head(values.size(), mask, options.weight.has_value());
  head.layout.round = client_key.round();
  head.layout.mask_id = scheme::mask_id(values.size(), mask);
  head.purpose = options.purpose;
  head.part = options.part;
  head.participants = {{client_key.client(), random_id(seeds)}};
  const Seed error_seed = seeds.next();
  std::optional<mask::RankIndex> ranks;
  if (mask != nullptr && mask->count() != mask->size()) ranks.emplace(*mask, options.threads);

  const SumContext context{key_->manifest(), key_->authority(), key_->epoch(),
                           head.purpose,     head.part,         head.layout};
  const Seed secret_seed = frame_seed(client_key, context, head.participants.front().frame_id);
  FrameWriter writer = begin_frame(FrameKind::kKaheBatch, head, frame);
  const std::uint32_t head_checksum = crc32c(writer.written());
  const std::size_t blocks = block_count(facts, head.layout);
  const std::size_t threads = threads_for(options.threads, blocks, kBlocksWorthEncrypting);
  const std::size_t block_bytes = facts.format(FrameKind::kKaheBatch).bytes();
  const auto payload = writer.reserve(blocks * block_bytes);

  ChecksumParts checksums(threads);
  std::mutex result_mutex;
  scheme::ValueCounts counts;
  std::uint64_t refused = scheme::ValueReader<T>::kNone;
  parallel_for(blocks, threads, 1, [&](std::size_t begin, std::size_t end) {
    scheme::FieldReader<T> reader(values, ranks ? &*ranks : nullptr, fixed_point, head.layout, weight,
                                  options.clip);
    BlockEncryption encryption(*key_, secret_seed);
    SecretVector<std::int64_t> integers(std::size_t{facts.degree} * facts.values_per_coefficient);
    std::uint32_t checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      // A row of the coefficients' field after the other, each but for the last coefficient.
      std::size_t count = 0;
      for (std::size_t field = 0; field < facts.values_per_coefficient; ++field) {
        const auto row = std::span(integers).subspan(field * facts.degree, facts.row_values());
        count += reader.read(block * facts.values_per_coefficient + field, row);
      }
      // Nothing of this batch will be sent; the rest is read for a lower position to name.
      if (reader.reader().refused_position != scheme::ValueReader<T>::kNone) continue;

      RandomStream stream(error_seed, block);
      const auto out = payload.subspan(block * block_bytes, block_bytes);
      encryption.encrypt(block, stream, integers, count, out);
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

template scheme::ValueCounts Encryptor::encrypt(const ClientKey&, std::span<const float>, const mask::Bitset*,
                                                const EncryptOptions&, SeedSource&,
                                                std::span<std::uint8_t>) const;
template scheme::ValueCounts Encryptor::encrypt(const ClientKey&, std::span<const double>,
                                                const mask::Bitset*, const EncryptOptions&, SeedSource&,
                                                std::span<std::uint8_t>) const;

}  // namespace shieldfl::kahe
