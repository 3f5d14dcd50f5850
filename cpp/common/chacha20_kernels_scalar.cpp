#include <array>
#include <bit>
#include <cstring>

#include "common/chacha20_kernels.h"
#include "common/secure_memory.h"

namespace shieldfl {
namespace {

void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
  a += b, d ^= a, d = std::rotl(d, 16);
  c += d, b ^= c, b = std::rotl(b, 12);
  a += b, d ^= a, d = std::rotl(d, 8);
  c += d, b ^= c, b = std::rotl(b, 7);
}

using Words = std::array<std::uint32_t, 16>;

// `x`: scratch.
void write_block(const std::uint32_t* state, std::uint32_t counter, Words& x, std::uint8_t* out) {
  for (std::size_t i = 0; i < 16; ++i) x[i] = state[i];
  x[12] = counter;
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
  for (std::size_t i = 0; i < 16; ++i) x[i] += i == 12 ? counter : state[i];
  std::memcpy(out, x.data(), sizeof x);  // little-endian hosts only, see CMakeLists.txt
}

void write_blocks(const std::uint32_t* state, std::size_t blocks, std::uint8_t* out) {
  Words x;
  for (std::size_t block = 0; block < blocks; ++block) {
    write_block(state, state[12] + static_cast<std::uint32_t>(block), x, out + kChaCha20BlockBytes * block);
  }
  secure_wipe(x.data(), sizeof x);
}

}  // namespace

const ChaCha20Kernels kChaCha20KernelsScalar = {write_blocks};

}  // namespace shieldfl
