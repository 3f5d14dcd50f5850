#include "kahe/sum_key.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "common/error.h"
#include "common/taint.h"
#include "kahe/frame_secret.h"
#include "parallel/parallel_for.h"
#include "ring/bit_packing.h"

namespace shieldfl::kahe {
namespace {

// Deriving and adding a secret polynomial takes some 7 us where the processor has AVX-512.
constexpr std::size_t kSecretsWorthAThread = 64;

// Bits of a coefficient of a sum, made positive.
unsigned coefficient_bits(std::uint32_t clients) {
  return static_cast<unsigned>(std::bit_width(2 * std::uint64_t{kMaxSample} * clients));
}

}  // namespace

SumRequest SumRequest::of_total(const CiphertextView& total, const Digest& total_digest) {
  return {total.head, total_digest};
}

std::vector<std::uint8_t> SumRequest::to_frame() const {
  FrameWriter writer({FrameKind::kKaheSumRequest, head.layout.parameter_id, head.layout.key_id},
                     head.bytes() + total_digest.size());
  head.put(writer);
  writer.put_bytes(total_digest);
  return writer.finish();
}

SumRequest SumRequest::from_frame(std::span<const std::uint8_t> frame) {
  FrameReader reader(frame, FrameKind::kKaheSumRequest);
  SumRequest request{FrameHead::read(reader, scheme::kMaxClients), {}};
  std::ranges::copy(reader.take_bytes(request.total_digest.size()), request.total_digest.begin());
  reader.expect_end();
  return request;
}

SumKey SumKey::of_request(const PublicKey& key, const SumRequest& request, std::span<const ClientKey> keys,
                          std::size_t threads) {
  const auto& participants = request.head.participants;
  const SumContext context = context_of(request.head, key);
  if (keys.size() != participants.size()) {
    throw Error(ErrorCode::kParameter, "a sum key takes the key of each participant, and of nobody else");
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].key_id() != key.id() || keys[i].client() != participants[i].client ||
        keys[i].round() != request.head.layout.round) {
      throw Error(ErrorCode::kKeyMismatch,
                  "client " + std::to_string(participants[i].client) +
                      "'s key is of another client, session or round than the request");
    }
  }
  const ParameterFacts& facts = key.parameters()->facts();
  const std::size_t secrets = secret_count(block_count(facts, request.head.layout));
  SumKey sum_key;
  sum_key.parameter_id_ = key.parameters()->id();
  sum_key.key_id_ = key.id();
  sum_key.clients_ = static_cast<std::uint32_t>(participants.size());
  sum_key.degree_ = facts.degree;
  sum_key.sum_ = sum_digest(context, participants);
  sum_key.total_digest_ = request.total_digest;
  sum_key.coefficients_.resize(secrets * facts.degree);
  std::mutex sum_mutex;
  const std::size_t drawn = secrets * keys.size();
  parallel_for(keys.size(), threads_for(threads, drawn, kSecretsWorthAThread), 1,
               [&](std::size_t begin, std::size_t end) {
                 SecretVector<std::int8_t> secret(facts.degree);
                 SecretVector<std::int8_t> scratch(facts.degree);
                 SecretVector<std::int32_t> sums(sum_key.coefficients_.size());
                 for (std::size_t i = begin; i < end; ++i) {
                   const Seed seed = frame_seed(keys[i], context, participants[i].frame_id);
                   for (std::size_t v = 0; v < secrets; ++v) {
                     sample_secret(seed, v, secret, scratch);
                     std::int32_t* to = sums.data() + v * facts.degree;
                     for (std::size_t j = 0; j < secret.size(); ++j) to[j] += secret[j];
                   }
                 }
                 const std::lock_guard lock(sum_mutex);
                 for (std::size_t j = 0; j < sums.size(); ++j) sum_key.coefficients_[j] += sums[j];
               });
  return sum_key;
}

SecretVector<std::uint8_t> SumKey::to_frame() const {
  const unsigned bits = coefficient_bits(clients_);
  const std::size_t packed = ring::packed_bytes(coefficients_.size(), bits);
  const std::size_t body = 4 + 4 + 8 + sum_.size() + total_digest_.size() + packed;
  SecretVector<std::uint8_t> frame(frame_bytes(body));
  FrameWriter writer({FrameKind::kKaheSumKey, parameter_id_, key_id_}, body, frame);
  writer.put(clients_);
  writer.put(degree_);
  writer.put(static_cast<std::uint64_t>(coefficients_.size()));
  writer.put_bytes(sum_);
  writer.put_bytes(total_digest_);
  SecretVector<std::uint64_t> fields(coefficients_.size());
  const std::int32_t largest = kMaxSample * static_cast<std::int32_t>(clients_);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    fields[i] = static_cast<std::uint64_t>(coefficients_[i] + largest);
  }
  ring::pack_residues(fields, {bits, 0}, writer.reserve(packed));
  // The authority gives it to whoever opens; its checksum is taken by table look-ups.
  declassify(frame.data(), frame.size());
  writer.finish();
  return frame;
}

SumKey SumKey::from_frame(std::span<const std::uint8_t> frame) {
  FrameReader reader(frame, FrameKind::kKaheSumKey);
  SumKey sum_key;
  sum_key.parameter_id_ = reader.header().parameter_id;
  sum_key.key_id_ = reader.header().key_id;
  sum_key.clients_ = reader.take<std::uint32_t>();
  sum_key.degree_ = reader.take<std::uint32_t>();
  const auto count = reader.take<std::uint64_t>();
  std::ranges::copy(reader.take_bytes(sum_key.sum_.size()), sum_key.sum_.begin());
  std::ranges::copy(reader.take_bytes(sum_key.total_digest_.size()), sum_key.total_digest_.begin());
  const auto refuse = [](bool wrong) {
    if (wrong) throw Error(ErrorCode::kWireFormat, "the sum key states what none has: it was altered");
  };
  refuse(sum_key.clients_ < 1 || sum_key.clients_ > scheme::kMaxClients);
  refuse(sum_key.degree_ < 8 || count > 8 * std::uint64_t{frame.size()} || count % sum_key.degree_ != 0);
  const unsigned bits = coefficient_bits(sum_key.clients_);
  const auto packed = reader.take_bytes(ring::packed_bytes(count, bits));
  reader.expect_end();
  const std::int32_t largest = kMaxSample * static_cast<std::int32_t>(sum_key.clients_);
  const std::uint64_t end = 2 * static_cast<std::uint64_t>(largest) + 1;
  refuse(!ring::residues_in_range(packed, {bits, 0}, end, count));
  SecretVector<std::uint64_t> fields(count);
  ring::unpack_residues(packed, {bits, 0}, fields);
  sum_key.coefficients_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    sum_key.coefficients_[i] = static_cast<std::int32_t>(fields[i]) - largest;
  }
  return sum_key;
}

}  // namespace shieldfl::kahe
