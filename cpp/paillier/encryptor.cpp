#include "paillier/encryptor.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/error.h"
#include "common/taint.h"
#include "mask/rank_index.h"
#include "paillier/block_encryption.h"
#include "paillier/randomizers.h"
#include "paillier/union_field_reader.h"
#include "parallel/parallel_for.h"
#include "scheme/field_reader.h"

namespace shieldfl::paillier {
namespace {

constexpr std::uint64_t kNone = scheme::ValueReader<double>::kNone;

// How many ciphertexts are encrypted at once: what suits the engine, and so that all threads have equally
// many.
std::size_t ciphertexts_at_once(const PublicKey& key, std::size_t count, std::size_t threads) {
  constexpr std::size_t kLanes = 8;  // of the widest engine
  const std::size_t most = randomizers_at_once(key);
  const std::size_t calls =
      threads * std::max<std::size_t>((count + threads * most - 1) / (threads * most), 1);
  const std::size_t share = std::max<std::size_t>((count + calls - 1) / calls, 1);
  return std::min(most, (share + kLanes - 1) / kLanes * kLanes);
}

// What a source of fields says of the values that it has read.
struct ReadValues {
  scheme::ValueCounts counts;
  std::uint64_t refused_position = kNone;
};

// Encrypts `count` ciphertexts into the rest of the frame, and finishes it unless a value was refused.
// make_source() gives each thread a function that reads the fields of as many ciphertexts as fit, from number
// `first` on, a multiple of that many, and returns what is to be said of all it has read.
template <typename MakeSource>
ReadValues encrypt_payload(const PublicKey& key, const EncryptOptions& options, const Seed& seed,
                           RandomizerPool* pool, std::size_t count, MakeSource make_source,
                           FrameWriter& writer) {
  const Parameters& parameters = key.parameters();
  const std::size_t threads = resolve_threads(options.threads);
  const std::size_t at_once = ciphertexts_at_once(key, count, threads);
  const std::size_t capacity = parameters.values_per_ciphertext();
  const std::size_t bytes = parameters.ciphertext_bytes();
  if (pool != nullptr && pool->key_id() != key.id()) {
    throw Error(ErrorCode::kKeyMismatch, "the pool's randomisers were made for another key");
  }
  if (pool == nullptr || pool->available() < count) prepare_randomizers(key);
  const std::uint32_t head_checksum = crc32c(writer.written());
  const auto payload = writer.reserve(count * bytes);
  ChecksumParts checksums(threads);
  std::mutex values_mutex;
  ReadValues values;
  parallel_for(count, threads, at_once, [&](std::size_t begin, std::size_t end) {
    auto read = make_source();
    BlockEncryption encryption(key, seed, pool, options.lookups_vartime);
    SecretVector<std::int64_t> fields(at_once * capacity);
    ReadValues part;
    std::uint32_t checksum = 0;
    for (std::size_t first = begin; first < end; first += at_once) {
      const std::size_t size = std::min(at_once, end - first);
      part = read(first, fields);
      // Nothing of this batch will be sent; the rest is read for a lower position to name.
      if (part.refused_position != kNone) continue;
      const auto out = payload.subspan(first * bytes, size * bytes);
      encryption.encrypt(first, std::span(fields).first(size * capacity), out);
      checksum = crc32c(out, checksum);
    }
    checksums.add(begin, checksum, (end - begin) * bytes);
    const std::lock_guard lock(values_mutex);
    values.counts += part.counts;
    values.refused_position = std::min(values.refused_position, part.refused_position);
  });
  // The client's own figures, for itself.
  declassify(&values.counts, sizeof values.counts);
  if (values.refused_position == kNone) writer.finish(checksums.after(head_checksum));
  return values;
}

}  // namespace

Encryptor::Encryptor(std::shared_ptr<const PublicKey> key) : key_(std::move(key)) {}

Layout Encryptor::layout(std::uint64_t value_count, bool weighted) const {
  Layout layout;
  layout.parameter_id = key_->parameters().id();
  layout.key_id = key_->id();
  layout.value_count = value_count;
  layout.weighted = weighted;
  return layout;
}

std::size_t Encryptor::frame_bytes(std::uint64_t size, const mask::Bitset* mask, bool weighted) const {
  if (mask != nullptr) mask::check_same_size(mask->size(), size);
  return ciphertext_frame_bytes(key_->parameters(), layout(mask == nullptr ? size : mask->count(), weighted),
                                1, nullptr);
}

template <typename T>
scheme::ValueCounts Encryptor::encrypt(const scheme::ValuePieces<T>& values, const mask::Bitset* mask,
                                       const EncryptOptions& options, SeedSource& seeds, RandomizerPool* pool,
                                       std::span<std::uint8_t> frame) const {
  const Parameters& parameters = key_->parameters();
  const scheme::FixedPoint fixed_point = parameters.fixed_point();
  if (mask != nullptr) mask::check_same_size(mask->size(), values.size());
  Layout layout = this->layout(mask == nullptr ? values.size() : mask->count(), options.weight.has_value());
  layout.round = options.round;
  layout.mask_id = scheme::mask_id(values.size(), mask);
  std::optional<std::int64_t> weight;
  if (options.weight) weight = fixed_point.quantise_weight(*options.weight);
  std::optional<mask::RankIndex> ranks;
  if (mask != nullptr && mask->count() != mask->size()) ranks.emplace(*mask, options.threads);

  const Id frame_id = random_id(seeds);
  const Seed seed = seeds.next();
  FrameWriter writer =
      begin_frame(FrameKind::kPaillierBatch, parameters, layout, {&frame_id, 1}, 1, nullptr, false, frame);
  const auto make_source = [&] {
    return [&, reader = scheme::FieldReader<T>(values, ranks ? &*ranks : nullptr, fixed_point, layout, weight,
                                               options.clip)](
               std::uint64_t first, std::span<std::int64_t> fields) mutable -> ReadValues {
      reader.read(first * parameters.values_per_ciphertext() / fields.size(), fields);
      return {reader.reader().counts, reader.reader().refused_position};
    };
  };
  const ReadValues read =
      encrypt_payload(*key_, options, seed, pool, block_count(parameters, layout), make_source, writer);
  if (read.refused_position != kNone) {
    scheme::refuse_value(fixed_point, read.refused_position,
                         static_cast<double>(values[read.refused_position]));
  }
  return read.counts;
}

std::size_t Encryptor::union_frame_bytes(const UnionOrder& order, const mask::Bitset& mask) const {
  const Parameters& parameters = key_->parameters();
  const mask::Bitset present = order.blocks_of(mask, parameters.values_per_ciphertext());
  return ciphertext_frame_bytes(parameters, layout(order.positions().size(), false), 1,
                                present.count() == present.size() ? nullptr : &present);
}

template <typename T>
scheme::ValueCounts Encryptor::encrypt_in_union(std::span<const T> values, const UnionOrder& order,
                                                const mask::Bitset& mask, const EncryptOptions& options,
                                                SeedSource& seeds, RandomizerPool* pool,
                                                std::span<std::uint8_t> frame) const {
  const Parameters& parameters = key_->parameters();
  const scheme::FixedPoint fixed_point = parameters.fixed_point();
  const std::size_t capacity = parameters.values_per_ciphertext();
  if (options.weight) {
    throw Error(ErrorCode::kParameter,
                "no weight is encrypted in a union: give the aggregator an integer weight for this batch");
  }
  mask::check_same_size(mask.size(), values.size());
  const mask::Bitset present = order.blocks_of(mask, capacity);
  const mask::RankIndex blocks(present, options.threads);
  Layout layout = this->layout(order.positions().size(), false);
  layout.round = options.round;
  layout.mask_id = order.id();

  const Id frame_id = random_id(seeds);
  const Seed seed = seeds.next();
  FrameWriter writer = begin_frame(FrameKind::kPaillierBatch, parameters, layout, {&frame_id, 1}, 1,
                                   present.count() == present.size() ? nullptr : &present, false, frame);
  const auto make_source = [&] {
    return [reader = UnionFieldReader<T>(values, order, mask, blocks, capacity, fixed_point, options.clip)](
               std::uint64_t first, std::span<std::int64_t> fields) mutable -> ReadValues {
      reader.read(first, fields);
      return {reader.counts, reader.refused_position};
    };
  };
  const ReadValues read = encrypt_payload(*key_, options, seed, pool, present.count(), make_source, writer);
  if (read.refused_position != kNone) {
    scheme::refuse_value(fixed_point, read.refused_position,
                         static_cast<double>(values[read.refused_position]));
  }
  return read.counts;
}

#define SHIELDFL_ENCRYPT(T)                                                                            \
  template scheme::ValueCounts Encryptor::encrypt(const scheme::ValuePieces<T>&, const mask::Bitset*,  \
                                                  const EncryptOptions&, SeedSource&, RandomizerPool*, \
                                                  std::span<std::uint8_t>) const;                      \
  template scheme::ValueCounts Encryptor::encrypt_in_union(                                            \
      std::span<const T>, const UnionOrder&, const mask::Bitset&, const EncryptOptions&, SeedSource&,  \
      RandomizerPool*, std::span<std::uint8_t>) const;
SHIELDFL_ENCRYPT(float)
SHIELDFL_ENCRYPT(double)
#undef SHIELDFL_ENCRYPT

}  // namespace shieldfl::paillier
