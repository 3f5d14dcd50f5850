#include <array>
#include <cstring>

#include "common/crc32c_kernels.h"

namespace shieldfl {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b] is the remainder of byte b followed by k zero bytes ("slicing by 8").
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kCrc32cPolynomial : 0);
    }
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t advance(std::uint32_t remainder, const std::uint8_t* data, std::size_t bytes) {
  for (; bytes >= 8; data += 8, bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, data, sizeof word);
    word ^= remainder;
    remainder = 0;
    for (std::size_t i = 0; i < 8; ++i) remainder ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; bytes > 0; ++data, --bytes) remainder = (remainder >> 8) ^ kTables[0][(remainder ^ *data) & 0xff];
  return remainder;
}

}  // namespace

const Crc32cKernels kCrc32cKernelsScalar = {advance};

}  // namespace shieldfl
