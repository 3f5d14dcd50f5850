#include "pads/sum_key.h"

#include <cmath>
#include <vector>

#include "common/error.h"
#include "common/secure_memory.h"
#include "common/taint.h"
#include "enrolled/opening.h"
#include "pads/encryptor.h"
#include "pads/pad_stream.h"
#include "parallel/parallel_for.h"

namespace shieldfl::pads {
namespace {

// Opens the blocks of a total. A thread's scratch space, wiped in the end. Refers to what it is given.
class BlockOpening {
 public:
  BlockOpening(const CiphertextView& total, std::span<const SumKey> sum_keys)
      : total_(total),
        sum_keys_(sum_keys),
        kernels_(pad_kernels(instruction_set())),
        words_(kBlockWords),
        pads_(kBlockWords),
        more_pads_(kBlockWords) {}

  ~BlockOpening() { secure_wipe_stack(); }
  BlockOpening(const BlockOpening&) = delete;
  BlockOpening& operator=(const BlockOpening&) = delete;

  // Whether these can be sums.
  bool open(std::size_t block, std::span<double> sums) {
    const ParameterFacts& facts = total_.head.facts;
    const scheme::FixedPoint fixed_point = facts.fixed_point();
    total_.format.unpack(total_.block(block), words_);
    const std::size_t bytes = total_.format.bytes();
    total_.format.unpack(sum_keys_.front().packed().subspan(block * bytes, bytes), pads_);
    for (const SumKey& more : sum_keys_.subspan(1)) {
      total_.format.unpack(more.packed().subspan(block * bytes, bytes), more_pads_);
      for (std::size_t i = 0; i < kBlockWords; ++i) pads_[i] += more_pads_[i];
    }
    const std::uint64_t max_sum =
        scheme::max_sum(fixed_point, facts.field_bits(), total_.head.participants.size());
    const double unit = std::ldexp(1.0, -static_cast<int>(fixed_point.fraction_bits));
    std::uint64_t wrong = kernels_.take_sums(words_.data(), pads_.data(), sums.size(), facts.field_bits(),
                                             max_sum, unit, sums.data());
    // What holds no value is zero.
    const std::uint64_t mask = facts.field_mask();
    for (std::size_t i = sums.size(); i < kBlockWords; ++i) wrong |= (words_[i] - pads_[i]) & mask;
    return wrong == 0;
  }

 private:
  const CiphertextView& total_;
  std::span<const SumKey> sum_keys_;
  const PadKernels& kernels_;
  SecretVector<std::uint64_t> words_;
  SecretVector<std::uint64_t> pads_;
  SecretVector<std::uint64_t> more_pads_;
};

// An answer's frame with its words still packed.
struct PackedSumKey {
  explicit PackedSumKey(std::span<const std::uint8_t> frame) {
    FrameReader reader(frame, FrameKind::kPadsSumKey);
    head = enrolled::SumKeyHead::read(reader);
    if (head.unit < scheme::kMinValueBits || head.unit > scheme::kMaxFieldBits ||
        head.count > 8 * std::uint64_t{frame.size()} || head.count % kBlockWords != 0) {
      throw Error(ErrorCode::kWireFormat, "the sum key states what none has: it was altered");
    }
    packed = reader.take_bytes(ring::packed_bytes(head.count, head.unit));
    reader.expect_end();
  }

  enrolled::SumKeyHead head;
  std::span<const std::uint8_t> packed;
};

}  // namespace

SumKey SumKey::of_request(const PublicKey& key, const SumRequest& request, std::span<const ClientKey> keys,
                          std::size_t threads) {
  const auto& participants = request.head.participants;
  const SumContext context = key.context_of(request.head);
  const ParameterFacts& facts = key.parameters()->facts();
  const std::size_t blocks = request.head.block_count();
  SumKey sum_key;
  sum_key.head_ = enrolled::head_of_answer(context, participants, request.total_digest, keys);
  sum_key.head_.unit = facts.field_bits();
  sum_key.head_.count = std::uint64_t{blocks} * kBlockWords;
  std::vector<Seed> seeds;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    seeds.push_back(enrolled::frame_seed(keys[i], context, participants[i].frame_id));
  }
  const packed::BlockFormat format = facts.format(FrameKind::kPadsTotal);
  sum_key.packed_.resize(blocks * format.bytes());
  // A pad of a block is worth about what it is to encrypt one.
  parallel_for(blocks, threads_for(threads, blocks * seeds.size(), kBlocksWorthAThread), 1,
               [&](std::size_t begin, std::size_t end) {
                 const PadAdder pads(facts);
                 SecretVector<std::uint64_t> words(kBlockWords);
                 for (std::size_t block = begin; block < end; ++block) {
                   std::fill(words.begin(), words.end(), 0);
                   for (const Seed& seed : seeds) pads.add(seed, block, words, words);
                   format.pack(words,
                               std::span(sum_key.packed_).subspan(block * format.bytes(), format.bytes()));
                 }
                 secure_wipe_stack();  // some kernels pack a block's last words there
               });
  return sum_key;
}

SecretVector<std::uint8_t> SumKey::to_frame() const {
  const std::size_t body = enrolled::SumKeyHead::kBytes + packed_.size();
  SecretVector<std::uint8_t> frame(frame_bytes(body));
  FrameWriter writer({FrameKind::kPadsSumKey, head_.parameter_id, head_.key_id}, body, frame);
  head_.put(writer);
  writer.put_bytes(packed_);
  // The authority gives it to whoever opens; its checksum is taken by table look-ups.
  declassify(frame.data(), frame.size());
  writer.finish();
  return frame;
}

SumKey SumKey::from_frame(std::span<const std::uint8_t> frame) {
  const PackedSumKey read(frame);
  SumKey sum_key;
  sum_key.head_ = read.head;
  sum_key.packed_.assign(read.packed.begin(), read.packed.end());
  return sum_key;
}

enrolled::SumKeyHead SumKey::head_of(std::span<const std::uint8_t> frame) {
  return PackedSumKey(frame).head;
}

std::optional<double> open_into(std::span<double> fields, const PublicKey& key, const CiphertextView& total,
                                const Digest& total_digest, std::span<const SumKey> sum_keys,
                                std::size_t threads) {
  enrolled::check_is_total(total);
  const SumContext context = key.context_of(total.head);
  enrolled::check_sum_keys(sum_keys, context, total, total_digest, total.head.facts.field_bits(),
                           std::uint64_t{total.head.block_count()} * kBlockWords);
  return enrolled::open_blocks(total, fields, threads, kBlocksWorthAThread,
                               [&] { return BlockOpening(total, sum_keys); });
}

OpenedSums open(const PublicKey& key, const CiphertextView& total, const Digest& total_digest,
                std::span<const SumKey> sum_keys, std::size_t threads) {
  return enrolled::in_new_memory(total.head.layout, [&](std::span<double> fields) {
    return open_into(fields, key, total, total_digest, sum_keys, threads);
  });
}

}  // namespace shieldfl::pads
