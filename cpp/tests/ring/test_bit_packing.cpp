#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "common/cpu_features.h"
#include "ring/bit_packing.h"
#include "ring/bit_packing_kernels.h"
#include "tests/check.h"

namespace ring_bit_packing_tests {

using namespace shieldfl;
using namespace shieldfl::ring;

namespace {

using Residues = std::vector<std::uint64_t>;
using Bytes = std::vector<std::uint8_t>;

constexpr unsigned kMostBits = 61;
constexpr unsigned kMostDroppedBits = 20;
constexpr std::size_t kMostCount = 4096;

Bytes pack(const Residues& residues, PackedWidth width) {
  Bytes bytes(packed_bytes(residues.size(), width.bits), 0xee);
  pack_residues(residues, width, bytes);
  return bytes;
}

// Bit by bit, as the header says it.
Bytes naive_pack(const Residues& residues, PackedWidth width) {
  Bytes bytes((residues.size() * width.bits + 7) / 8, 0);
  for (std::size_t i = 0; i < residues.size() * width.bits; ++i) {
    const std::uint64_t field = residues[i / width.bits] >> width.dropped_bits;
    const auto bit = static_cast<unsigned>((field >> (i % width.bits)) & 1);
    bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | bit << (i % 8));
  }
  return bytes;
}

std::uint64_t middle_of_those_that_pack_alike(std::uint64_t residue, PackedWidth width) {
  const std::uint64_t cut_off = std::uint64_t{1} << width.dropped_bits;
  return residue / cut_off * cut_off + cut_off / 2;
}

// Memory that cannot be accessed past its end; rows end there.
class RowBeforeUnmappedPage {
 public:
  RowBeforeUnmappedPage() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    mapped_ = (kBytes + page_ - 1) / page_ * page_ + page_;
    void* const memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    start_ = static_cast<std::uint8_t*>(memory);
    CHECK(mprotect(start_ + mapped_ - page_, page_, PROT_NONE) == 0);
  }
  ~RowBeforeUnmappedPage() { munmap(start_, mapped_); }
  RowBeforeUnmappedPage(const RowBeforeUnmappedPage&) = delete;
  RowBeforeUnmappedPage& operator=(const RowBeforeUnmappedPage&) = delete;

  // The row: `count` bytes, filled. What comes before is filled too, so that stray writes show.
  std::uint8_t* bytes(std::size_t count) {
    row_ = start_ + mapped_ - page_ - count;
    std::fill(row_ - kBefore, row_ + count, kFill);
    return row_;
  }
  std::uint64_t* words(const std::uint64_t* content, std::size_t count) {
    auto* const row = reinterpret_cast<std::uint64_t*>(bytes(count * sizeof(std::uint64_t)));
    std::copy_n(content, count, row);
    return row;
  }
  bool nothing_written_before() const {
    return std::all_of(row_ - kBefore, row_, [](std::uint8_t byte) { return byte == kFill; });
  }

 private:
  static constexpr std::uint8_t kFill = 0xee;
  static constexpr std::size_t kBefore = 64;
  static constexpr std::size_t kBytes = kMostCount * sizeof(std::uint64_t) + kBefore;

  std::size_t page_;
  std::size_t mapped_ = 0;
  std::uint8_t* start_ = nullptr;
  std::uint8_t* row_ = nullptr;
};

Residues random_words(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  Residues words(count);
  for (std::uint64_t& word : words) word = generator();
  return words;
}

// Packs, unpacks, adds and subtracts one row with one instruction set, between guards; compares with plain
// loops.
class RowCheck {
 public:
  void operator()(const BitPackingKernels& kernels, const Residues& residues, PackedWidth width) {
    const auto [bits, dropped] = width;
    const std::size_t count = residues.size();
    const Bytes expected = reference_pack(residues, width);
    std::uint8_t* const out = packed_.bytes(expected.size());
    kernels.pack(words_.words(residues.data(), count), count, bits, dropped, out);
    CHECK(std::equal(expected.begin(), expected.end(), out) && packed_.nothing_written_before());

    // What lies past the last field is not read as one.
    if (count * bits % 8 != 0)
      out[expected.size() - 1] |= static_cast<std::uint8_t>(0xff << (count * bits % 8));
    std::uint64_t* const row = words_.words(sums_.data(), count);
    kernels.unpack(out, count, bits, dropped, row);
    for (std::size_t i = 0; i < count; ++i)
      CHECK(row[i] == middle_of_those_that_pack_alike(residues[i], width));
    CHECK(words_.nothing_written_before());

    std::uint64_t largest = 0;
    for (const std::uint64_t residue : residues) largest = std::max(largest, residue >> dropped);
    words_.words(sums_.data(), count);
    CHECK(kernels.accumulate(out, count, bits, dropped, largest, row) && words_.nothing_written_before());
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(row[i] == sums_[i] + middle_of_those_that_pack_alike(residues[i], width));
    }
    kernels.subtract(out, count, bits, dropped, row);
    CHECK(std::equal(row, row + count, sums_.begin()) && words_.nothing_written_before());
    CHECK(kernels.in_range(out, count, bits, largest));
    if (largest > 0) {
      CHECK(!kernels.in_range(out, count, bits, largest - 1));
      CHECK(!kernels.accumulate(out, count, bits, dropped, largest - 1, row));
    }
  }

 private:
  // The scalar kernel, which packed_residues_have_these_bits compares with naive_pack.
  static Bytes reference_pack(const Residues& residues, PackedWidth width) {
    Bytes bytes(packed_bytes(residues.size(), width.bits));
    bit_packing_kernels(InstructionSet::kScalar)
        .pack(residues.data(), residues.size(), width.bits, width.dropped_bits, bytes.data());
    return bytes;
  }

  RowBeforeUnmappedPage packed_;
  RowBeforeUnmappedPage words_;
  Residues sums_ = random_words(kMostCount, 20);
};

}  // namespace

TEST(packed_residues_have_these_bytes) {
  // 5 bits each, lowest first: 00001 00010 11111 is 1 | 2 << 5 | 31 << 10.
  CHECK(pack({1, 2, 31}, {5, 0}) == (Bytes{0x41, 0x7c}));
  CHECK(pack({0xabc, 0xdef}, {12, 0}) == (Bytes{0xbc, 0xfa, 0xde}));
  CHECK(pack({0xabcf, 0xdefe}, {12, 4}) == (Bytes{0xbc, 0xfa, 0xde}));
  CHECK(pack({1}, {61, 0}) == (Bytes{1, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(packed_bytes(0, 50) == 0 && packed_bytes(1, 50) == 7 && packed_bytes(2048, 50) == 12800);
}

TEST(packed_residues_have_these_bits) {
  const Residues words = random_words(1000, 61);
  for (unsigned bits = 1; bits <= kMostBits; ++bits) {
    const PackedWidth width = {bits, std::min(kMostBits - bits, bits % (kMostDroppedBits + 1))};
    const std::uint64_t largest = (std::uint64_t{1} << (bits + width.dropped_bits)) - 1;
    for (const std::size_t count : {0, 1, 2, 3, 7, 8, 9, 31, 64, 65, 127, 1000}) {
      Residues random(count);
      std::transform(random.begin(), random.end(), words.begin(), random.begin(),
                     [=](std::uint64_t, std::uint64_t word) { return word & largest; });
      for (const Residues& residues : {random, Residues(count, largest), Residues(count, 0)}) {
        const Bytes expected = naive_pack(residues, width);
        for (const InstructionSet set : supported_instruction_sets()) {
          Bytes bytes(expected.size(), 0xee);
          bit_packing_kernels(set).pack(residues.data(), count, bits, width.dropped_bits, bytes.data());
          CHECK(bytes == expected);
        }
        Residues unpacked(count, 0xdead);
        unpack_residues(pack(residues, width), width, unpacked);
        for (std::size_t i = 0; i < count; ++i) {
          CHECK(unpacked[i] == middle_of_those_that_pack_alike(residues[i], width));
        }
      }
    }
  }
}

TEST(every_instruction_set_packs_every_width_and_count_within_its_row) {
  std::vector<std::size_t> counts(68);
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  counts.insert(counts.end(), {2048, 4096});
  const Residues words = random_words(kMostCount, 4096);
  RowCheck check;
  for (unsigned bits = 1; bits <= kMostBits; ++bits) {
    for (unsigned dropped = 0; dropped <= std::min(kMostDroppedBits, kMostBits - bits); ++dropped) {
      for (const std::size_t count : counts) {
        Residues residues(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count));
        for (std::uint64_t& residue : residues) residue >>= 64 - bits - dropped;
        for (const InstructionSet set : supported_instruction_sets()) {
          check(bit_packing_kernels(set), residues, {bits, dropped});
        }
      }
    }
  }
}

TEST(a_field_above_the_modulus_is_found_in_every_lane) {
  constexpr std::size_t kCount = 71;
  for (const PackedWidth width :
       {PackedWidth{7, 0}, {8, 3}, {13, 20}, {37, 12}, {49, 0}, {50, 4}, {57, 4}, {60, 0}}) {
    const unsigned modulus_bits = width.bits + width.dropped_bits;
    const std::uint64_t modulus =
        (std::uint64_t{1} << modulus_bits) - (std::uint64_t{5} << width.dropped_bits) + 1;
    const std::uint64_t largest = (modulus - 1) >> width.dropped_bits;
    for (const InstructionSet set : supported_instruction_sets()) {
      const BitPackingKernels& kernels = bit_packing_kernels(set);
      const auto in_range = [&](const Residues& residues) {
        const Bytes bytes = naive_pack(residues, width);
        Residues sums(kCount, 0);
        const bool added =
            kernels.accumulate(bytes.data(), kCount, width.bits, width.dropped_bits, largest, sums.data());
        for (std::size_t i = 0; i < kCount; ++i)
          CHECK(sums[i] == middle_of_those_that_pack_alike(residues[i], width));
        CHECK(added == kernels.in_range(bytes.data(), kCount, width.bits, largest));
        return added;
      };
      const Residues highest(kCount, modulus - 1);
      CHECK(in_range(highest) && in_range(Residues(kCount, 0)));
      for (std::size_t i = 0; i < kCount; ++i) {
        Residues residues = i % 2 == 0 ? highest : Residues(kCount, 0);
        for (const std::uint64_t excess : {1, 4}) {
          residues[i] = (largest + excess) << width.dropped_bits;
          CHECK(!in_range(residues));
        }
      }
    }
  }
}

TEST(sums_tell_rows_that_no_client_packs) {
  const PackedWidth width = {49, 1};
  const std::uint64_t modulus = (std::uint64_t{1} << 50) - 27;
  const Residues residues = {0, modulus - 1, 12345};
  Bytes bytes = pack(residues, width);
  const Residues before = {1, 2, 3};
  Residues sums = before;
  CHECK(accumulate_residues(bytes, width, modulus, sums));
  CHECK(sums == (Residues{2, modulus + 2, 12348}));
  CHECK(residues_in_range(bytes, width, modulus, residues.size()));
  // 147 bits leave five of the last byte.
  for (unsigned bit = 3; bit < 8; ++bit) {
    Bytes altered = bytes;
    altered.back() = static_cast<std::uint8_t>(altered.back() | 1U << bit);
    CHECK(!residues_in_range(altered, width, modulus, residues.size()));
    CHECK(!accumulate_residues(altered, width, modulus, sums));
    subtract_residues(altered, width, sums);
  }
  CHECK(sums == (Residues{2, modulus + 2, 12348}));
  subtract_residues(bytes, width, sums);
  CHECK(sums == before);
  const Bytes above = pack({0, modulus + 26, 0}, width);
  CHECK(!residues_in_range(above, width, modulus, residues.size()));
  CHECK(!accumulate_residues(above, width, modulus, sums));
  subtract_residues(above, width, sums);
  CHECK(sums == before);
  const PackedWidth whole = {50, 0};
  CHECK(residues_in_range(pack({modulus - 1}, whole), whole, modulus, 1));
  CHECK(!residues_in_range(pack({modulus}, whole), whole, modulus, 1));
  Residues none;
  CHECK(accumulate_residues({}, width, modulus, none) && residues_in_range({}, width, modulus, 0));
}

}  // namespace ring_bit_packing_tests
