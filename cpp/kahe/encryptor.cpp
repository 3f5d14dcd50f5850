#include "kahe/encryptor.h"

#include "common/crc32c.h"
#include "common/error.h"
#include "kahe/block_encryption.h"
#include "rlwe/payload_encryption.h"

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

  const SumContext context{key_->manifest(), key_->authority(), key_->epoch(),
                           head.purpose,     head.part,         head.layout};
  const Seed secret_seed = frame_seed(client_key, context, head.participants.front().frame_id);
  FrameWriter writer = begin_frame(FrameKind::kKaheBatch, head, frame);
  std::uint32_t checksum = crc32c(writer.written());
  const auto payload =
      writer.reserve(block_count(facts, head.layout) * facts.format(FrameKind::kKaheBatch).bytes());
  const rlwe::Plaintext<T> plaintext{values, mask, fixed_point, head.layout, weight, options.clip};
  // A row for each field of the coefficients, each but for the last coefficient.
  const rlwe::IntegerRows rows{facts.values_per_coefficient, facts.degree, facts.row_values()};
  const auto counts =
      rlwe::encrypt_payload(plaintext, rows, error_seed, options.threads, payload, checksum, [&] {
        return [encryption = BlockEncryption(*key_, secret_seed)](
                   std::size_t block, RandomStream& stream, std::span<const std::int64_t> integers,
                   std::size_t count, std::span<std::uint8_t> out) mutable {
          encryption.encrypt(block, stream, integers, count, out);
        };
      });
  writer.finish(checksum);
  return counts;
}

template scheme::ValueCounts Encryptor::encrypt(const ClientKey&, std::span<const float>, const mask::Bitset*,
                                                const EncryptOptions&, SeedSource&,
                                                std::span<std::uint8_t>) const;
template scheme::ValueCounts Encryptor::encrypt(const ClientKey&, std::span<const double>,
                                                const mask::Bitset*, const EncryptOptions&, SeedSource&,
                                                std::span<std::uint8_t>) const;

}  // namespace shieldfl::kahe
