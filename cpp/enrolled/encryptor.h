// Encryption of masked updates under a client's own keys: gather, quantise, pack and encrypt, block by block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "common/error.h"
#include "common/random.h"
#include "enrolled/ciphertext.h"
#include "enrolled/context.h"
#include "mask/bitset.h"
#include "packed/payload_encryption.h"
#include "scheme/value_pieces.h"
#include "scheme/value_reader.h"

namespace shieldfl::enrolled {

struct EncryptOptions {
  Id purpose{};
  std::uint32_t part = 0;
  // Scales the update and travels, encrypted, beside it; rounded to a multiple of the weights' step.
  // Positive.
  std::optional<double> weight = {};
  bool clip = false;        // saturate what is out of range, and count it, instead of refusing it
  std::size_t threads = 0;  // 0: as many as the work is worth
};

// Throws Error(kParameter) without keys or for more than kMaxAuthorities, Error(kKeyMismatch) for keys of
// another session, or of two clients or rounds.
void check_client_keys(std::span<const ClientKey> keys, const Id& key_id);

// `Encryption` is what a scheme makes of a block: constructed of (public key, seeds of the frame's one-time
// secret, one for each of the client's keys, a source of further seeds), it gives each thread by thread() a
// functor as packed::encrypt_payload() takes it. kBlocksWorthAThread of it: as for threads_for().
template <typename PublicKey, typename Encryption>
class Encryptor {
 public:
  using Scheme = typename PublicKey::Scheme;

  explicit Encryptor(std::shared_ptr<const PublicKey> key) : key_(std::move(key)) {}

  // The length of the frame that encrypt writes. `size`: of the update. Throws Error(kParameter) for a mask
  // of another size.
  [[nodiscard]] std::size_t frame_bytes(std::uint64_t size, const mask::Bitset* mask, bool weighted) const {
    return ciphertext_frame_bytes(Scheme::kKinds.batch, head(size, mask, weighted));
  }

  // Encrypts the values at the mask's positions, ascending (all of them without a mask; possibly none), into
  // `frame`, which has frame_bytes(...) bytes, for the round that the client's keys are at: one for each
  // authority of the session. T is float or double. Each frame gets an id of its own; never send two of one
  // round, purpose and part: the caller keeps to that, and does not send the same update again in a later
  // round once it was in an opened sum. Throws as check_client_keys() does, Error(kParameter) for a mask of
  // another size, a weight that is not positive or where not every sum fits, Error(kRange) that names the
  // lowest position whose value is NaN, infinite or, unless `clip`, out of range; what `frame` then holds is
  // of no use to anybody. The result depends on seeds, keys and values alone, not on the number of threads.
  template <typename T>
  scheme::ValueCounts encrypt(std::span<const ClientKey> client_keys, const scheme::ValuePieces<T>& values,
                              const mask::Bitset* mask, const EncryptOptions& options, SeedSource& seeds,
                              std::span<std::uint8_t> frame) const {
    check_client_keys(client_keys, key_->id());
    const auto& facts = key_->parameters()->facts();
    const scheme::FixedPoint fixed_point = facts.fixed_point();
    std::optional<std::int64_t> weight;
    if (options.weight) weight = fixed_point.quantise_weight(*options.weight);
    Head head = this->head(values.size(), mask, options.weight.has_value());
    head.layout.round = client_keys.front().round();
    head.layout.mask_id = scheme::mask_id(values.size(), mask);
    head.purpose = options.purpose;
    head.part = options.part;
    head.participants = {{client_keys.front().client(), random_id(seeds)}};

    const SumContext context = key_->context_of(head);
    std::vector<Seed> secret_seeds;
    for (const ClientKey& key : client_keys) {
      secret_seeds.push_back(frame_seed(key, context, head.participants.front().frame_id));
    }
    const Encryption encryption(*key_, std::move(secret_seeds), seeds);
    FrameWriter writer = begin_frame(Scheme::kKinds.batch, head, frame);
    std::uint32_t checksum = crc32c(writer.written());
    const auto payload = writer.reserve(head.block_count() * facts.format(Scheme::kKinds.batch).bytes());
    const packed::Plaintext<T> plaintext{values, mask, fixed_point, head.layout, weight, options.clip};
    const auto counts = packed::encrypt_payload(plaintext, facts.integer_rows(), options.threads,
                                                Encryption::kBlocksWorthAThread, payload, checksum,
                                                [&] { return encryption.thread(); });
    writer.finish(checksum);
    return counts;
  }

 private:
  using Head = FrameHead<typename Scheme::Facts>;

  // All but the round, the mask's id and whose stream it is.
  [[nodiscard]] Head head(std::uint64_t size, const mask::Bitset* mask, bool weighted) const {
    if (mask != nullptr) mask::check_same_size(mask->size(), size);
    require(
        !weighted || key_->parameters()->facts().holds_any_sum(),
        "no weights travel beside values where sum_bits is less than any sum of them takes: leave sum_bits "
        "out, or multiply by weights before encrypting");
    Head head{key_->parameters()->facts(), {}, {}, 0, {Participant{}}};
    head.layout.parameter_id = key_->parameters()->id();
    head.layout.key_id = key_->id();
    head.layout.value_count = mask != nullptr ? mask->count() : size;
    head.layout.weighted = weighted;
    return head;
  }

  std::shared_ptr<const PublicKey> key_;
};

}  // namespace shieldfl::enrolled
