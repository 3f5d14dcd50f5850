#include "ckks/encryptor.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>
#include <string>

#include "ckks/block_encryption.h"
#include "ckks/ciphertext.h"
#include "ckks/value_reader.h"
#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/error.h"
#include "mask/rank_index.h"
#include "parallel/parallel_for.h"

namespace shieldfl::ckks {
namespace {

// A limit for a message, in a few digits whatever its size.
std::string in_short(double limit) {
  std::ostringstream text;
  text << limit;
  return text.str();
}

// The weight as the integer that travels; throws unless it is positive and representable.
std::int64_t quantise_weight(const ParameterFacts& facts, double weight) {
  const double scaled = std::nearbyint(std::ldexp(weight, static_cast<int>(facts.fraction_bits)));
  if (!(scaled >= 1.0) || scaled > static_cast<double>(facts.max_magnitude())) {
    throw Error(ErrorCode::kParameter, "the weight must be at least 2^-" +
                                           std::to_string(facts.fraction_bits) + " and at most " +
                                           in_short(std::ldexp(static_cast<double>(facts.max_magnitude()),
                                                               -static_cast<int>(facts.fraction_bits))) +
                                           ": divide every client's weight by the largest one");
  }
  return static_cast<std::int64_t>(scaled);
}

[[noreturn]] void refuse_value(const Parameters& parameters, std::uint64_t position, double value) {
  const std::string at = "the value at position " + std::to_string(position);
  if (!std::isfinite(value)) throw Error(ErrorCode::kRange, at + " is NaN or infinite");
  throw Error(ErrorCode::kRange,
              at + " (times the weight, if any) is above the limit of " + in_short(parameters.value_limit()) +
                  " in magnitude: raise value_bits, lower fraction_bits, or pass clip=True");
}

}  // namespace

Id mask_id(std::uint64_t size, const mask::Bitset* mask) {
  if (mask != nullptr) return mask->content_id();
  return digest({}, {reinterpret_cast<const std::uint8_t*>(&size), sizeof size});
}

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
std::uint64_t Encryptor::encrypt(std::span<const T> values, const mask::Bitset* mask,
                                 const EncryptOptions& options, SeedSource& seeds,
                                 std::span<std::uint8_t> frame) const {
  const Parameters& parameters = *key_->parameters();
  const ParameterFacts& facts = parameters.facts();
  const std::size_t threads = resolve_threads(options.threads);
  Layout layout = this->layout(values.size(), mask, options.weight.has_value());
  const std::int64_t weight = layout.weighted ? quantise_weight(facts, *options.weight) : 0;
  const double scale =
      layout.weighted ? std::ldexp(static_cast<double>(weight), -static_cast<int>(facts.fraction_bits)) : 1.0;
  layout.round = options.round;
  layout.mask_id = mask_id(values.size(), mask);
  std::optional<mask::RankIndex> ranks;
  if (mask != nullptr && mask->count() != mask->size()) ranks.emplace(*mask, threads);

  const Id frame_id = random_id(seeds);
  const Seed seed = seeds.next();
  FrameWriter writer = begin_frame(FrameKind::kCkksBatch, facts, layout, {&frame_id, 1}, frame);
  const std::uint32_t head_checksum = crc32c(writer.written());
  const std::size_t blocks = block_count(facts, layout);
  const std::size_t block_bytes = facts.block_bytes(FrameKind::kCkksBatch);
  const auto payload = writer.reserve(blocks * block_bytes);

  ChecksumParts checksums(threads);
  std::mutex result_mutex;
  std::uint64_t clipped = 0;
  std::uint64_t refused = ValueReader<T>::kNone;
  parallel_for(blocks, threads, 1, [&](std::size_t begin, std::size_t end) {
    ValueReader<T> reader(values, ranks ? &*ranks : nullptr, facts, scale, options.clip);
    BlockEncryption encryption(*key_);
    SecretVector<std::int64_t> integers(facts.values_per_block());
    std::uint32_t checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      const std::uint64_t first = block * facts.values_per_block();
      const std::uint64_t count =
          std::min<std::uint64_t>(facts.values_per_block(), layout.field_count() - first);
      const std::uint64_t value_end = std::min(first + count, layout.value_count);
      if (first < value_end) reader.read(first, std::span(integers).first(value_end - first));
      if (layout.weighted && first + count == layout.field_count()) integers[count - 1] = weight;
      std::fill(integers.begin() + static_cast<std::ptrdiff_t>(count), integers.end(), 0);

      // Nothing of this batch will be sent; the rest is read for a lower position to name.
      if (reader.refused_position != ValueReader<T>::kNone) continue;

      RandomStream stream(seed, block);
      const auto out = payload.subspan(block * block_bytes, block_bytes);
      encryption.encrypt(stream, integers, count, out);
      checksum = crc32c(out, checksum);
    }
    checksums.add(begin, checksum, (end - begin) * block_bytes);
    const std::lock_guard lock(result_mutex);
    clipped += reader.clipped;
    refused = std::min(refused, reader.refused_position);
  });
  if (refused != ValueReader<T>::kNone)
    refuse_value(parameters, refused, static_cast<double>(values[refused]));
  writer.finish(checksums.after(head_checksum));
  return clipped;
}

template std::uint64_t Encryptor::encrypt(std::span<const float>, const mask::Bitset*, const EncryptOptions&,
                                          SeedSource&, std::span<std::uint8_t>) const;
template std::uint64_t Encryptor::encrypt(std::span<const double>, const mask::Bitset*, const EncryptOptions&,
                                          SeedSource&, std::span<std::uint8_t>) const;

}  // namespace shieldfl::ckks
