#include "packed/packed_sums.h"

#include <algorithm>
#include <atomic>

#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/huge_pages.h"
#include "common/verify.h"
#include "common/wire.h"
#include "parallel/parallel_for.h"

namespace shieldfl::packed {
namespace {

constexpr std::size_t kNoBlock = ~std::size_t{0};

void lower_to(std::atomic<std::size_t>& lowest, std::size_t value) {
  std::size_t seen = lowest;
  while (value < seen && !lowest.compare_exchange_weak(seen, value)) continue;
}

}  // namespace

PackedSums::PackedSums(std::size_t words, std::size_t most_additions, Reduce reduce, std::size_t threads)
    : words_(words), most_additions_(most_additions), reduce_(std::move(reduce)), threads_(threads) {
  static_cast<void>(resolve_threads(threads));  // refused here, where it was given
}

std::span<std::uint64_t> PackedSums::sums_of(std::size_t block) {
  return std::span(sums_).subspan(block * words_, words_);
}

void PackedSums::prepare(std::size_t blocks) {
  if (additions_ != 0) return;
  sums_.clear();
  sums_.reserve(blocks * words_);
  prefer_huge_pages(sums_.data(), sums_.capacity() * sizeof sums_[0]);
  sums_.assign(blocks * words_, 0);
}

void PackedSums::add(const BlockFormat& format, std::span<const std::uint8_t> payload,
                     std::span<const std::uint8_t> head, std::optional<std::uint32_t> expected_checksum) {
  const std::size_t threads = format.threads_for_adding(threads_, blocks());
  const std::size_t block_bytes = format.bytes();
  VERIFY(format.words() == words_ && payload.size() == blocks() * block_bytes);
  ChecksumParts checksums(threads);
  if (additions_ == most_additions_) {
    parallel_for(blocks(), threads, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t block = begin; block < end; ++block) reduce_(sums_of(block));
    });
    additions_ = 1;
  }
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
    fail_word(wrong_block);
  }
  ++additions_;
}

std::uint32_t PackedSums::write(const BlockFormat& format, std::span<std::uint8_t> payload,
                                std::uint32_t checksum) const {
  VERIFY(format.words() == words_ && payload.size() == blocks() * format.bytes());
  const std::size_t threads = format.threads_for_adding(threads_, blocks());
  ChecksumParts checksums(threads);
  parallel_for(blocks(), threads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<std::uint64_t> words(words_);
    std::uint32_t part_checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      const auto sums = std::span(sums_).subspan(block * words_, words_);
      std::copy(sums.begin(), sums.end(), words.begin());
      reduce_(words);
      const auto out = payload.subspan(block * format.bytes(), format.bytes());
      format.pack(words, out);
      part_checksum = crc32c(out, part_checksum);
    }
    checksums.add(begin, part_checksum, (end - begin) * format.bytes());
  });
  return checksums.after(checksum);
}

}  // namespace shieldfl::packed
