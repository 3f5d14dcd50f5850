#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "common/crc32c.h"
#include "common/crc32c_kernels.h"
#include "tests/check.h"

namespace common_crc32c_tests {

using namespace shieldfl;

namespace {

using Bytes = std::vector<std::uint8_t>;

// Bit by bit, from the polynomial.
std::uint32_t naive_crc32c(const Bytes& bytes) {
  std::uint32_t remainder = 0xffffffff;
  for (const std::uint8_t byte : bytes) {
    remainder ^= byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~remainder;
}

Bytes random_bytes(std::size_t count) {
  std::mt19937 generator(3720);
  Bytes bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(generator());
  return bytes;
}

}  // namespace

TEST(crc32c_of_every_instruction_set_gives_the_vectors_of_rfc_3720) {
  Bytes ascending(32);
  for (std::size_t i = 0; i < 32; ++i) ascending[i] = static_cast<std::uint8_t>(i);
  const Bytes read_command = {0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                              0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                              0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
  struct Vector {
    Bytes bytes;
    std::uint32_t checksum;
  };
  const Vector vectors[] = {{Bytes(32, 0), 0x8a9136aa},
                            {Bytes(32, 0xff), 0x62a8ab43},
                            {ascending, 0x46dd794e},
                            {{ascending.rbegin(), ascending.rend()}, 0x113fdb5c},
                            {read_command, 0xd9963a56},
                            {{'1', '2', '3', '4', '5', '6', '7', '8', '9'}, 0xe3069283},
                            {{}, 0}};
  for (const auto& [bytes, checksum] : vectors) {
    CHECK(naive_crc32c(bytes) == checksum);
    CHECK(crc32c(bytes) == checksum);
    for (const InstructionSet set : supported_instruction_sets()) {
      CHECK(~crc32c_kernels(set).advance(0xffffffff, bytes.data(), bytes.size()) == checksum);
    }
  }
}

TEST(crc32c_is_the_same_with_every_instruction_set) {
  const Bytes bytes = random_bytes(200000);
  const Crc32cKernels& scalar = crc32c_kernels(InstructionSet::kScalar);
  const std::uint32_t starts[] = {0, 0xffffffff, 0x12345678};
  std::vector<std::size_t> lengths(301);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i;
  for (const std::size_t stripes : {3 * 256, 6 * 256, 3 * 4096, 6 * 4096, 3 * 4096 + 3 * 256}) {
    lengths.insert(lengths.end(), {stripes - 1, stripes, stripes + 1, stripes + 9});
  }
  lengths.push_back(bytes.size() - 16);
  for (const std::size_t length : lengths) {
    for (std::size_t misaligned = 0; misaligned < 16; misaligned += length < 1000 ? 1 : 5) {
      const std::uint8_t* const data = bytes.data() + misaligned;
      for (const std::uint32_t start : starts) {
        const std::uint32_t expected = scalar.advance(start, data, length);
        if (start == 0xffffffff) CHECK(~expected == naive_crc32c({data, data + length}));
        for (const InstructionSet set : supported_instruction_sets()) {
          CHECK(crc32c_kernels(set).advance(start, data, length) == expected);
        }
      }
    }
  }
}

TEST(crc32c_goes_on_where_it_stopped) {
  const Bytes bytes = random_bytes(1000);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    CHECK(crc32c(std::span(bytes).subspan(cut), crc32c(std::span(bytes).first(cut))) == whole);
  }
}

TEST(crc32c_of_parts_combine) {
  const Bytes bytes = random_bytes(100000);
  std::mt19937 generator(8);
  const auto all = std::span(bytes);
  for (int repetition = 0; repetition < 500; ++repetition) {
    const std::size_t length = generator() % (bytes.size() + 1);
    const std::size_t cut =
        repetition < 2 ? length * static_cast<std::size_t>(repetition) : generator() % (length + 1);
    const auto first = all.first(cut);
    const auto second = all.subspan(cut, length - cut);
    CHECK(crc32c_combine(crc32c(first), crc32c(second), second.size()) == crc32c(all.first(length)));
  }
}

TEST(crc32c_combine_takes_any_length) {
  // Zeros in front of nothing: 2^k of them are twice 2^(k - 1).
  std::uint32_t doubled = crc32c(Bytes(1, 0));
  for (unsigned log2_length = 1; log2_length < 64; ++log2_length) {
    const std::uint64_t half = std::uint64_t{1} << (log2_length - 1);
    doubled = crc32c_combine(doubled, doubled, half);
    if (log2_length <= 20) CHECK(doubled == crc32c(Bytes(std::size_t{1} << log2_length, 0)));
    // Adding in two steps is adding at once.
    const std::uint32_t in_steps = crc32c_combine(crc32c_combine(1, 0, half), 0, half + 12345);
    CHECK(crc32c_combine(1, 0, 2 * half + 12345) == in_steps);
  }
}

}  // namespace common_crc32c_tests
