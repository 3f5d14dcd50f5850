#include "ckks/encryptor.h"

#include "ckks/block_encryption.h"
#include "ckks/ciphertext.h"
#include "common/crc32c.h"
#include "packed/payload_encryption.h"
#include "rlwe/packed_digits.h"

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
scheme::ValueCounts Encryptor::encrypt(const scheme::ValuePieces<T>& values, const mask::Bitset* mask,
                                       const EncryptOptions& options, SeedSource& seeds,
                                       std::span<std::uint8_t> frame) const {
  const ParameterFacts& facts = key_->parameters()->facts();
  Layout layout = this->layout(values.size(), mask, options.weight.has_value());
  const scheme::FixedPoint fixed_point = facts.fixed_point();
  std::optional<std::int64_t> weight;
  if (options.weight) weight = fixed_point.quantise_weight(*options.weight);
  layout.round = options.round;
  layout.mask_id = scheme::mask_id(values.size(), mask);

  const Id frame_id = random_id(seeds);
  const Seed seed = seeds.next();
  FrameWriter writer = begin_frame(FrameKind::kCkksBatch, facts, layout, {&frame_id, 1}, frame);
  std::uint32_t checksum = crc32c(writer.written());
  const auto payload =
      writer.reserve(block_count(facts, layout) * facts.format(FrameKind::kCkksBatch).bytes());
  const packed::Plaintext<T> plaintext{values, mask, fixed_point, layout, weight, options.clip};
  const std::size_t in_block = facts.values_per_block();
  const auto counts =
      packed::encrypt_payload(plaintext, {1, in_block, in_block}, options.threads,
                              rlwe::kBlocksWorthEncrypting, payload, checksum, [&] {
                                return [&seed, encryption = BlockEncryption(*key_)](
                                           std::size_t block, std::span<const std::int64_t> integers,
                                           std::size_t count, std::span<std::uint8_t> out) mutable {
                                  RandomStream stream(seed, block);
                                  encryption.encrypt(stream, integers, count, out);
                                };
                              });
  writer.finish(checksum);
  return counts;
}

template scheme::ValueCounts Encryptor::encrypt(const scheme::ValuePieces<float>&, const mask::Bitset*,
                                                const EncryptOptions&, SeedSource&,
                                                std::span<std::uint8_t>) const;
template scheme::ValueCounts Encryptor::encrypt(const scheme::ValuePieces<double>&, const mask::Bitset*,
                                                const EncryptOptions&, SeedSource&,
                                                std::span<std::uint8_t>) const;

}  // namespace shieldfl::ckks
