#include "ckks/encryptor.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>
#include <string>

#include "ckks/block_encryption.h"
#include "ckks/ciphertext.h"
#include "ckks/packing.h"
#include "ckks/quantiser.h"
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

// Reads, checks and quantises one block's values.
template <typename T>
class ValueReader {
 public:
  ValueReader(std::span<const T> values, const mask::RankIndex* ranks, const Quantiser& quantiser, bool clip)
      : values_(values), ranks_(ranks), quantiser_(quantiser), clip_(clip) {}

  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  // Quantises the values of ranks [first, first + out.size()). After a refusal `refused_position` is set.
  void read(std::uint64_t first, std::span<double> out) {
    if (ranks_ != nullptr) {
      positions_.resize(out.size());
      ranks_->gather_positions(first, out.size(), positions_.data());
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t position = ranks_ != nullptr ? positions_[i] : first + i;
      switch (quantiser_.quantise(static_cast<double>(values_[position]), out[i])) {
        case Quantiser::Verdict::kFine:
          break;
        case Quantiser::Verdict::kOutOfRange:
          if (clip_) {
            ++clipped;
            break;
          }
          [[fallthrough]];
        case Quantiser::Verdict::kNotFinite:
          out[i] = 0.0;
          refused_position = std::min(refused_position, position);
      }
    }
  }

  std::uint64_t clipped = 0;
  std::uint64_t refused_position = kNone;

 private:
  std::span<const T> values_;
  const mask::RankIndex* ranks_;
  const Quantiser& quantiser_;
  bool clip_;
  std::vector<std::uint32_t> positions_;
};

[[noreturn]] void refuse_value(const Parameters& parameters, std::uint64_t position, double value) {
  const std::string at = "the value at position " + std::to_string(position);
  if (!std::isfinite(value)) throw Error(ErrorCode::kRange, at + " is NaN or infinite");
  throw Error(ErrorCode::kRange,
              at + " (times the weight, if any) is above the limit of " + in_short(parameters.value_limit()) +
                  " in magnitude: raise value_bits, lower fraction_bits, or pass clip=True");
}

}  // namespace

Id mask_id(std::uint64_t size, const mask::Bitset* mask) {
  std::vector<std::uint64_t> words = {size};
  if (mask != nullptr && mask->count() != size) {
    words.insert(words.end(), mask->words().begin(), mask->words().end());
  }
  return digest({reinterpret_cast<const std::uint8_t*>(words.data()), words.size() * sizeof words[0]});
}

Encryptor::Encryptor(std::shared_ptr<const PublicKey> key) : key_(std::move(key)) {}

template <typename T>
EncryptedBatch Encryptor::encrypt(std::span<const T> values, const mask::Bitset* mask,
                                  const EncryptOptions& options, SeedSource& seeds) const {
  const Parameters& parameters = *key_->parameters();
  const ParameterFacts& facts = parameters.facts();
  if (mask != nullptr) mask::check_same_size(mask->size(), values.size());
  const std::size_t threads = resolve_threads(options.threads);
  const bool weighted = options.weight.has_value();
  const std::int64_t weight = weighted ? quantise_weight(facts, *options.weight) : 0;
  const Quantiser quantiser(
      facts,
      weighted ? std::ldexp(static_cast<double>(weight), -static_cast<int>(facts.fraction_bits)) : 1.0);

  std::optional<mask::RankIndex> ranks;
  if (mask != nullptr && mask->count() != mask->size()) ranks.emplace(*mask, threads);
  const std::uint64_t count = mask != nullptr ? mask->count() : values.size();
  const Layout layout{parameters.id(), key_->id(), options.round, mask_id(values.size(), mask),
                      count,           weighted};
  const Id frame_id = random_id(seeds);
  const Seed seed = seeds.next();
  FrameWriter writer = begin_frame(FrameKind::kCkksBatch, facts, layout, {&frame_id, 1});
  const std::size_t blocks = block_count(facts, layout);
  const auto payload = writer.reserve(blocks * facts.block_bytes());
  const ExactPacking packing(parameters);

  std::mutex result_mutex;
  std::uint64_t clipped = 0;
  std::uint64_t refused = ValueReader<T>::kNone;
  parallel_for(blocks, threads, 1, [&](std::size_t begin, std::size_t end) {
    ValueReader<T> reader(values, ranks ? &*ranks : nullptr, quantiser, options.clip);
    BlockEncryption encryption(*key_);
    SecretVector<double> fields;
    SecretVector<std::int64_t> integers;
    SecretVector<std::uint64_t> encoded;
    for (std::size_t block = begin; block < end; ++block) {
      const std::uint64_t first = block * facts.values_per_block();
      const std::uint64_t last =
          std::min<std::uint64_t>(first + facts.values_per_block(), layout.field_count());
      fields.resize(last - first);
      const std::uint64_t value_end = std::min(last, count);
      if (first < value_end) reader.read(first, std::span(fields).first(value_end - first));
      if (weighted && last == layout.field_count()) fields.back() = static_cast<double>(weight);

      RandomStream stream(seed, block);
      AddMessage add_message;
      if (facts.packing == Packing::kExact) {
        integers.assign(fields.begin(), fields.end());
        add_message = [&](std::size_t p, std::span<std::uint64_t> row) {
          packing.add_message(integers, p, row);
        };
      } else {
        for (double& field : fields) field = std::ldexp(field, -static_cast<int>(facts.fraction_bits));
        encoded.resize(facts.block_words() / 2);
        parameters.slot_encoder().encode(fields, std::ldexp(1.0, facts.log2_scale), encoded);
        add_message = [&](std::size_t p, std::span<std::uint64_t> row) {
          const auto message = std::span(encoded).subspan(p * row.size(), row.size());
          parameters.ntts()[p].inverse(message);
          for (std::size_t i = 0; i < row.size(); ++i)
            row[i] = ring::add(row[i], message[i], facts.primes[p]);
        };
      }
      pack_block(facts, encryption.encrypt(stream, add_message),
                 payload.subspan(block * facts.block_bytes(), facts.block_bytes()));
    }
    const std::lock_guard lock(result_mutex);
    clipped += reader.clipped;
    refused = std::min(refused, reader.refused_position);
  });
  if (refused != ValueReader<T>::kNone)
    refuse_value(parameters, refused, static_cast<double>(values[refused]));
  return {writer.finish(), clipped};
}

template EncryptedBatch Encryptor::encrypt(std::span<const float>, const mask::Bitset*, const EncryptOptions&,
                                           SeedSource&) const;
template EncryptedBatch Encryptor::encrypt(std::span<const double>, const mask::Bitset*,
                                           const EncryptOptions&, SeedSource&) const;

}  // namespace shieldfl::ckks
