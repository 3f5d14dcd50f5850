#include "common/random.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "common/error.h"
#include "common/secure_memory.h"

namespace shieldfl {
namespace {

void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
  a += b, d ^= a, d = std::rotl(d, 16);
  c += d, b ^= c, b = std::rotl(b, 12);
  a += b, d ^= a, d = std::rotl(d, 8);
  c += d, b ^= c, b = std::rotl(b, 7);
}

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

RandomStream::RandomStream(const Seed& seed, std::uint64_t stream_index) {
  state_ = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};  // "expand 32-byte k"
  for (std::size_t i = 0; i < 8; ++i) state_[4 + i] = load_u32(seed.bytes.data() + 4 * i);
  state_[12] = 0;  // block counter
  state_[13] = 0;
  state_[14] = static_cast<std::uint32_t>(stream_index);
  state_[15] = static_cast<std::uint32_t>(stream_index >> 32);
}

RandomStream::~RandomStream() {
  secure_wipe(state_.data(), sizeof state_);
  secure_wipe(block_.data(), block_.size());
}

void RandomStream::refill() {
  if (exhausted_) throw Error(ErrorCode::kInternal, "a random stream gives at most 2^38 bytes");
  auto x = state_;
  for (int round = 0; round < 10; ++round) {
    quarter_round(x[0], x[4], x[8], x[12]);
    quarter_round(x[1], x[5], x[9], x[13]);
    quarter_round(x[2], x[6], x[10], x[14]);
    quarter_round(x[3], x[7], x[11], x[15]);
    quarter_round(x[0], x[5], x[10], x[15]);
    quarter_round(x[1], x[6], x[11], x[12]);
    quarter_round(x[2], x[7], x[8], x[13]);
    quarter_round(x[3], x[4], x[9], x[14]);
  }
  for (std::size_t i = 0; i < 16; ++i) x[i] += state_[i];
  std::memcpy(block_.data(), x.data(), block_.size());
  secure_wipe(x.data(), sizeof x);
  exhausted_ = ++state_[12] == 0;
  used_ = 0;
}

void RandomStream::fill(std::span<std::uint8_t> out) {
  while (!out.empty()) {
    if (used_ == block_.size()) refill();
    const auto taken = std::min(out.size(), block_.size() - used_);
    std::memcpy(out.data(), block_.data() + used_, taken);
    used_ += taken;
    out = out.subspan(taken);
  }
}

std::uint64_t RandomStream::next_u64() {
  std::array<std::uint8_t, 8> bytes;
  fill(bytes);
  std::uint64_t value;
  std::memcpy(&value, bytes.data(), sizeof value);
  secure_wipe(bytes.data(), bytes.size());
  return value;
}

std::array<std::uint8_t, 16> random_id(SeedSource& source) {
  const Seed seed = source.next();
  std::array<std::uint8_t, 16> id;
  std::memcpy(id.data(), seed.bytes.data(), id.size());
  return id;
}

}  // namespace shieldfl
