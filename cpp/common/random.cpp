#include "common/random.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/cpu_features.h"
#include "common/error.h"
#include "common/secure_memory.h"
#include "common/taint.h"
#include "common/verify.h"

namespace shieldfl {
namespace {

std::uint32_t load_u32(const std::uint8_t* bytes) {
  std::uint32_t value;
  std::memcpy(&value, bytes, sizeof value);  // little-endian hosts only, see CMakeLists.txt
  return value;
}

}  // namespace

Seed::~Seed() {
  secure_wipe(bytes.data(), bytes.size());
}

Seed SystemSeedSource::next() {
  Seed seed;
  std::size_t filled = 0;
  while (filled < seed.bytes.size()) {
    const auto got = ::getrandom(seed.bytes.data() + filled, seed.bytes.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error(ErrorCode::kInternal, "the operating system gave no randomness (getrandom failed)");
    filled += static_cast<std::size_t>(got);
  }
  return seed;
}

Seed InsecureTestRandom::next() {
  Seed seed;
  std::memcpy(seed.bytes.data(), &first_seed_, sizeof first_seed_);
  std::memcpy(seed.bytes.data() + sizeof first_seed_, &drawn_, sizeof drawn_);
  ++drawn_;
  return seed;
}

RandomStream::RandomStream(const Seed& seed, std::uint64_t stream_index, std::uint32_t first_block)
    : kernels_(chacha20_kernels(instruction_set())),
      state_{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574},  // "expand 32-byte k"
      blocks_left_((std::uint64_t{1} << 32) - first_block) {
  for (std::size_t i = 0; i < 8; ++i) state_[4 + i] = load_u32(seed.bytes.data() + 4 * i);
  state_[12] = first_block;
  state_[13] = 0;
  state_[14] = static_cast<std::uint32_t>(stream_index);
  state_[15] = static_cast<std::uint32_t>(stream_index >> 32);
}

RandomStream::~RandomStream() {
  secure_wipe(state_.data(), sizeof state_);
  secure_wipe(buffer_.data(), used_);
  secure_wipe_stack();
}

void RandomStream::require(std::uint64_t size) const {
  if (size > end_ - begin_ + kChaCha20BlockBytes * blocks_left_) {
    throw Error(ErrorCode::kInternal, "a random stream gives at most 2^38 bytes");
  }
}

void RandomStream::generate(std::size_t blocks, std::uint8_t* out) {
  kernels_.blocks(state_.data(), blocks, out);
  state_[12] += static_cast<std::uint32_t>(blocks);
  blocks_left_ -= blocks;
}

// Few bytes cost one block; who reads on gets more at a time, at which the kernels are faster.
void RandomStream::refill() {
  const std::size_t blocks = std::min<std::uint64_t>(refill_blocks_, blocks_left_);
  refill_blocks_ = std::min(4 * refill_blocks_, kMaxPeekWords / kBlockWords);
  generate(blocks, bytes());
  begin_ = 0;
  end_ = kChaCha20BlockBytes * blocks;
  used_ = std::max(used_, end_);
}

void RandomStream::fill(std::span<std::uint8_t> out) {
  require(out.size());
  while (!out.empty()) {
    std::size_t taken = std::min(out.size(), end_ - begin_);
    if (taken > 0) {
      std::memcpy(out.data(), bytes() + begin_, taken);
      begin_ += taken;
    } else if (out.size() >= kChaCha20BlockBytes) {
      const std::size_t blocks = out.size() / kChaCha20BlockBytes;
      generate(blocks, out.data());
      taken = kChaCha20BlockBytes * blocks;
    } else {
      refill();
    }
    out = out.subspan(taken);
  }
}

std::uint64_t RandomStream::next_u64() {
  std::uint64_t value;
  if (end_ - begin_ >= sizeof value) {
    std::memcpy(&value, bytes() + begin_, sizeof value);
    begin_ += sizeof value;
    return value;
  }
  std::array<std::uint8_t, sizeof value> split;
  fill(split);
  std::memcpy(&value, split.data(), sizeof value);
  secure_wipe(split.data(), split.size());
  return value;
}

std::span<const std::uint64_t> RandomStream::peek_words(std::size_t least, std::size_t wanted) {
  VERIFY(least <= kMaxPeekWords);
  require(sizeof(std::uint64_t) * least);
  const std::size_t kept = end_ - begin_;
  if (kept < sizeof(std::uint64_t) * least || begin_ % sizeof(std::uint64_t) != 0) {
    // What is kept moves to the front, to a whole word and if possible such that blocks behind it are
    // aligned.
    const std::size_t gap = (kChaCha20BlockBytes - kept % kChaCha20BlockBytes) % kChaCha20BlockBytes;
    const std::size_t front = gap - gap % sizeof(std::uint64_t);
    std::memmove(bytes() + front, bytes() + begin_, kept);
    begin_ = front;
    end_ = front + kept;
    const std::size_t target = sizeof(std::uint64_t) * std::clamp(wanted, least, kMaxPeekWords);
    if (target > kept) {
      std::size_t blocks = (target - kept + kChaCha20BlockBytes - 1) / kChaCha20BlockBytes;
      // All sixteen take the widest kernel no longer than nine do.
      if (blocks > kBlocksAtOnce / 2) blocks = (blocks + kBlocksAtOnce - 1) / kBlocksAtOnce * kBlocksAtOnce;
      blocks = std::min<std::uint64_t>(blocks, blocks_left_);
      generate(blocks, bytes() + end_);
      end_ += kChaCha20BlockBytes * blocks;
    }
    used_ = std::max(used_, end_);
  }
  return {buffer_.data() + begin_ / sizeof(std::uint64_t), (end_ - begin_) / sizeof(std::uint64_t)};
}

std::array<std::uint8_t, 16> random_id(SeedSource& source) {
  const Seed seed = source.next();
  std::array<std::uint8_t, 16> id;
  std::memcpy(id.data(), seed.bytes.data(), id.size());
  declassify(id.data(), id.size());  // it travels in the clear, and its seed has no other use
  return id;
}

}  // namespace shieldfl
