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

void refuse(bool wrong) {
  if (wrong) throw Error(ErrorCode::kWireFormat, "the sum key states what none has: it was altered");
}

// An answer's frame with its coefficients still packed.
struct PackedSumKey {
  explicit PackedSumKey(std::span<const std::uint8_t> frame) {
    FrameReader reader(frame, FrameKind::kKaheSumKey);
    head = enrolled::SumKeyHead::read(reader);
    refuse(head.unit < 8 || head.count > 8 * std::uint64_t{frame.size()} || head.count % head.unit != 0);
    bits = coefficient_bits(head.clients);
    packed = reader.take_bytes(ring::packed_bytes(head.count, bits));
    reader.expect_end();
  }

  enrolled::SumKeyHead head;
  unsigned bits = 0;
  std::span<const std::uint8_t> packed;
};

}  // namespace

SumKey SumKey::of_request(const PublicKey& key, const SumRequest& request, std::span<const ClientKey> keys,
                          std::size_t threads) {
  const auto& participants = request.head.participants;
  const SumContext context = key.context_of(request.head);
  const ParameterFacts& facts = key.parameters()->facts();
  const std::size_t secrets = secret_count(request.head.block_count());
  SumKey sum_key;
  sum_key.head_ = enrolled::head_of_answer(context, participants, request.total_digest, keys);
  sum_key.head_.unit = facts.degree;
  sum_key.head_.count = secrets * facts.degree;
  sum_key.coefficients_.resize(secrets * facts.degree);
  std::mutex sum_mutex;
  const std::size_t drawn = secrets * keys.size();
  parallel_for(keys.size(), threads_for(threads, drawn, kSecretsWorthAThread), 1,
               [&](std::size_t begin, std::size_t end) {
                 SecretVector<std::int8_t> secret(facts.degree);
                 SecretVector<std::int8_t> scratch(facts.degree);
                 SecretVector<std::int32_t> sums(sum_key.coefficients_.size());
                 for (std::size_t i = begin; i < end; ++i) {
                   const Seed seed = enrolled::frame_seed(keys[i], context, participants[i].frame_id);
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
  const unsigned bits = coefficient_bits(head_.clients);
  const std::size_t packed = ring::packed_bytes(coefficients_.size(), bits);
  const std::size_t body = enrolled::SumKeyHead::kBytes + packed;
  SecretVector<std::uint8_t> frame(frame_bytes(body));
  FrameWriter writer({FrameKind::kKaheSumKey, head_.parameter_id, head_.key_id}, body, frame);
  head_.put(writer);
  SecretVector<std::uint64_t> fields(coefficients_.size());
  const std::int32_t largest = kMaxSample * static_cast<std::int32_t>(head_.clients);
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
  const PackedSumKey read(frame);
  SumKey sum_key;
  sum_key.head_ = read.head;
  const std::int32_t largest = kMaxSample * static_cast<std::int32_t>(read.head.clients);
  const std::uint64_t end = 2 * static_cast<std::uint64_t>(largest) + 1;
  refuse(!ring::residues_in_range(read.packed, {read.bits, 0}, end, read.head.count));
  SecretVector<std::uint64_t> fields(read.head.count);
  ring::unpack_residues(read.packed, {read.bits, 0}, fields);
  sum_key.coefficients_.resize(fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    sum_key.coefficients_[i] = static_cast<std::int32_t>(fields[i]) - largest;
  }
  return sum_key;
}

enrolled::SumKeyHead SumKey::head_of(std::span<const std::uint8_t> frame) {
  return PackedSumKey(frame).head;
}

}  // namespace shieldfl::kahe
