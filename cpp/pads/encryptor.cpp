#include "pads/encryptor.h"

#include <utility>

#include "common/taint.h"
#include "common/verify.h"

namespace shieldfl::pads {

BlockEncryption::BlockEncryption(const PublicKey& key, std::vector<Seed> frame_seeds, SeedSource&)
    : key_(key), frame_seeds_(std::move(frame_seeds)) {}

BlockEncryption::Thread::Thread(const BlockEncryption& frame)
    : frame_(frame),
      format_(frame.key_.parameters()->facts().format(FrameKind::kPadsBatch)),
      pads_(frame.key_.parameters()->facts()),
      words_(kBlockWords) {}

void BlockEncryption::Thread::operator()(std::size_t block, std::span<const std::int64_t> values,
                                         std::size_t count, std::span<std::uint8_t> out) {
  VERIFY(values.size() == kBlockWords && count <= frame_.key_.parameters()->facts().values_per_block());
  VERIFY(out.size() == format_.bytes());
  std::span<const std::uint64_t> in(reinterpret_cast<const std::uint64_t*>(values.data()), values.size());
  for (const Seed& seed : frame_.frame_seeds_) {
    pads_.add(seed, block, in, words_);
    in = words_;
  }
  format_.pack(words_, out);
  // A ciphertext goes to the aggregator; before that, its checksum is taken by table look-ups.
  declassify(out.data(), out.size());
}

}  // namespace shieldfl::pads
