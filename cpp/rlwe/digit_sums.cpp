#include "rlwe/digit_sums.h"

#include <algorithm>
#include <atomic>

#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/huge_pages.h"
#include "common/verify.h"
#include "common/wire.h"
#include "parallel/parallel_for.h"

namespace shieldfl::rlwe {
namespace {

// Digits are below 2^50, or 2^50 + 2^15 with the middle of what was dropped: a sum of this many is below
// 2^63.
constexpr std::size_t kMaxLazyAdditions = (std::size_t{1} << 13) - 1;
static_assert(kMaxPrimeBits <= 50 && kMaxDroppedBits <= 16);

constexpr std::size_t kNoBlock = ~std::size_t{0};

void lower_to(std::atomic<std::size_t>& lowest, std::size_t value) {
  std::size_t seen = lowest;
  while (value < seen && !lowest.compare_exchange_weak(seen, value)) continue;
}

}  // namespace

DigitSums::DigitSums(DigitBasis basis, std::size_t polynomials, std::size_t threads)
    : basis_(std::move(basis)), polynomials_(polynomials), threads_(threads) {
  static_cast<void>(resolve_threads(threads));  // refused here, where it was given
}

std::span<std::uint64_t> DigitSums::sums_of(std::size_t block) {
  return std::span(sums_).subspan(block * words(), words());
}

std::size_t DigitSums::threads_for_blocks() const {
  return threads_for(threads_, blocks(), kBlocksWorthAdding);
}

void DigitSums::prepare(std::size_t blocks) {
  if (lazy_additions_ != 0) return;
  sums_.clear();
  sums_.reserve(blocks * words());
  prefer_huge_pages(sums_.data(), sums_.capacity() * sizeof sums_[0]);
  sums_.assign(blocks * words(), 0);
}

void DigitSums::add(const BlockFormat& format, std::span<const std::uint8_t> payload,
                    std::span<const std::uint8_t> head, std::optional<std::uint32_t> expected_checksum) {
  const std::size_t threads = threads_for_blocks();
  const std::size_t block_bytes = format.bytes();
  VERIFY(format.words() == words() && payload.size() == blocks() * block_bytes);
  ChecksumParts checksums(threads);
  if (lazy_additions_ == kMaxLazyAdditions) reduce();
  std::atomic<std::size_t> wrong_block = kNoBlock;
  parallel_for(blocks(), threads, 1, [&](std::size_t begin, std::size_t end) {
    std::uint32_t part_checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      const auto bytes = payload.subspan(block * block_bytes, block_bytes);
      if (expected_checksum) part_checksum = crc32c(bytes, part_checksum);
      if (!format.accumulate(bytes, sums_of(block))) lower_to(wrong_block, block);
    }
    checksums.add(begin, part_checksum, (end - begin) * block_bytes);
  });
  const bool damaged = expected_checksum && checksums.after(crc32c(head)) != *expected_checksum;
  if (damaged || wrong_block != kNoBlock) {
    // In a plain loop: what takes memory could fail, and leave the sum as it must not be.
    for (std::size_t block = 0; block < blocks(); ++block) {
      format.subtract(payload.subspan(block * block_bytes, block_bytes), sums_of(block));
    }
    if (damaged) FrameReader::fail_checksum();
    fail_digit(wrong_block);
  }
  ++lazy_additions_;
}

void DigitSums::reduce_ciphertext(std::span<std::uint64_t> sums) const {
  for (std::size_t polynomial = 0; polynomial < polynomials_; ++polynomial) {
    basis_.reduce(sums.subspan(polynomial * basis_.words(), basis_.words()));
  }
}

void DigitSums::reduce() {
  parallel_for(blocks(), threads_for_blocks(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) reduce_ciphertext(sums_of(block));
  });
  lazy_additions_ = 1;
}

std::uint32_t DigitSums::write(const BlockFormat& format, std::span<std::uint8_t> payload,
                               std::uint32_t checksum) const {
  VERIFY(format.words() == words() && payload.size() == blocks() * format.bytes());
  const std::size_t threads = threads_for_blocks();
  ChecksumParts checksums(threads);
  parallel_for(blocks(), threads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<std::uint64_t> digits(words());
    std::uint32_t part_checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      const auto sums = std::span(sums_).subspan(block * words(), words());
      std::copy(sums.begin(), sums.end(), digits.begin());
      reduce_ciphertext(digits);
      const auto out = payload.subspan(block * format.bytes(), format.bytes());
      format.pack(digits, out);
      part_checksum = crc32c(out, part_checksum);
    }
    checksums.add(begin, part_checksum, (end - begin) * format.bytes());
  });
  return checksums.after(checksum);
}

}  // namespace shieldfl::rlwe
