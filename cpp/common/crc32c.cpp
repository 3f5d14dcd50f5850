#include "common/crc32c.h"

#include <array>
#include <cstring>

namespace shieldfl {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82f63b78;

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b] is the checksum of byte b followed by k zero bytes ("slicing by 8").
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][byte] = crc;
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

}  // namespace

std::uint32_t crc32c(std::span<const std::uint8_t> data, std::uint32_t previous) {
  std::uint32_t crc = ~previous;
  while (data.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, data.data(), sizeof word);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
    data = data.subspan(8);
  }
  for (const std::uint8_t byte : data) crc = (crc >> 8) ^ kTables[0][(crc ^ byte) & 0xff];
  return ~crc;
}

}  // namespace shieldfl
