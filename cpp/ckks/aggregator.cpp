#include "ckks/aggregator.h"

#include <algorithm>
#include <atomic>

#include "ckks/digits.h"
#include "ckks/parameter_search.h"
#include "common/checksum_parts.h"
#include "common/crc32c.h"
#include "common/error.h"
#include "common/huge_pages.h"
#include "parallel/parallel_for.h"

namespace shieldfl::ckks {
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

Aggregator::Aggregator(std::shared_ptr<const PublicKey> key, const scheme::Expected& expected,
                       std::size_t threads)
    : RoundSum(key->parameters()->id(), key->id(), key->parameters()->facts().max_clients, expected),
      key_(std::move(key)),
      threads_(threads) {
  static_cast<void>(resolve_threads(threads));  // refused here, where it was given
}

std::size_t Aggregator::threads_for_blocks(std::size_t blocks) const {
  return threads_for(threads_, blocks, kBlocksWorthAdding);
}

void Aggregator::add(std::span<const std::uint8_t> frame) {
  constexpr FrameKind kind = FrameKind::kCkksBatch;
  add(CiphertextView::parse_head(frame, kind), kind, Checksum::kCheck);
}

void Aggregator::add(const CiphertextView& batch) {
  add(batch, FrameKind::kCkksBatch, Checksum::kKnown);
}

void Aggregator::add_total(std::span<const std::uint8_t> frame) {
  constexpr FrameKind kind = FrameKind::kCkksTotal;
  add(CiphertextView::parse_head(frame, kind), kind, Checksum::kCheck);
}

void Aggregator::add_total(const CiphertextView& total) {
  add(total, FrameKind::kCkksTotal, Checksum::kKnown);
}

std::span<std::uint64_t> Aggregator::sums_of(std::size_t block, std::size_t row) {
  const ParameterFacts& facts = key_->parameters()->facts();
  return std::span(sums_).subspan(block * facts.block_words() + row * facts.degree, facts.degree);
}

void Aggregator::add(const CiphertextView& frame, FrameKind expected, Checksum checksum) {
  if (frame.kind != expected) {
    throw Error(ErrorCode::kWireFormat, expected == FrameKind::kCkksBatch
                                            ? "only batches are added here, no totals"
                                            : "only totals are added here, no batches");
  }
  const std::lock_guard lock(mutex_);
  try {
    check(frame.layout, frame.frame_ids);
  } catch (const Error&) {
    // Damage in the head is damage first of all, not another key or round.
    if (checksum == Checksum::kCheck) FrameReader::check_checksum(frame.frame);
    throw;
  }
  const ParameterFacts& facts = key_->parameters()->facts();
  const std::size_t blocks = block_count(facts, frame.layout);
  const std::size_t threads = threads_for_blocks(blocks);
  // All memory is taken before the sum is touched: an allocation that fails leaves everything as it was.
  const bool first = empty();
  std::set<Id> added(frame.frame_ids.begin(), frame.frame_ids.end());
  ChecksumParts checksums(threads);
  if (first) {
    sums_.reserve(blocks * facts.block_words());
    prefer_huge_pages(sums_.data(), sums_.capacity() * sizeof sums_[0]);
    sums_.assign(blocks * facts.block_words(), 0);
  }
  if (lazy_additions_ == kMaxLazyAdditions) reduce();

  std::atomic<std::size_t> wrong_block = kNoBlock;
  parallel_for(blocks, threads, 1, [&](std::size_t begin, std::size_t end) {
    std::uint32_t part_checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      const auto bytes = frame.block(block);
      if (checksum == Checksum::kCheck) part_checksum = crc32c(bytes, part_checksum);
      bool in_range = true;
      for_each_row(facts, frame.kind, bytes, [&](std::size_t row, std::span<const std::uint8_t> packed) {
        const std::uint64_t prime = facts.row_prime(row);
        in_range &=
            ring::accumulate_residues(packed, facts.row_width(frame.kind, row), prime, sums_of(block, row));
      });
      if (!in_range) lower_to(wrong_block, block);
    }
    checksums.add(begin, part_checksum, (end - begin) * facts.block_bytes(frame.kind));
  });

  const auto head = frame.frame.first(frame.frame.size() - frame.payload.size() - kFrameTrailerBytes);
  const bool damaged = checksum == Checksum::kCheck &&
                       checksums.after(crc32c(head)) != FrameReader::stated_checksum(frame.frame);
  if (damaged || wrong_block != kNoBlock) {
    subtract(frame);
    if (damaged) FrameReader::fail_checksum();
    fail_residue(wrong_block);
  }
  ++lazy_additions_;
  note_added(frame.layout, std::move(added));
}

void Aggregator::subtract(const CiphertextView& frame) {
  const ParameterFacts& facts = frame.facts;
  const std::size_t blocks = block_count(facts, frame.layout);
  parallel_for(blocks, threads_for_blocks(blocks), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      for_each_row(facts, frame.kind, frame.block(block),
                   [&](std::size_t row, std::span<const std::uint8_t> packed) {
                     ring::subtract_residues(packed, facts.row_width(frame.kind, row), sums_of(block, row));
                   });
    }
  });
}

void Aggregator::reduce() {
  const ParameterFacts& facts = key_->parameters()->facts();
  const std::size_t words = facts.block_words();
  const std::size_t blocks = sums_.size() / words;
  parallel_for(blocks, threads_for_blocks(blocks), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      reduce_digits(facts, std::span(sums_).subspan(block * words, words));
    }
  });
  lazy_additions_ = 1;
}

std::size_t Aggregator::total_bytes() const {
  return ciphertext_frame_bytes(FrameKind::kCkksTotal, key_->parameters()->facts(), summed_layout(),
                                frame_count());
}

void Aggregator::write_total(std::span<std::uint8_t> frame) const {
  const ParameterFacts& facts = key_->parameters()->facts();
  const Layout& layout = summed_layout();
  FrameWriter writer = begin_frame(FrameKind::kCkksTotal, facts, layout, frame_ids(), frame);
  const std::uint32_t head_checksum = crc32c(writer.written());
  const std::size_t blocks = block_count(facts, layout);
  const std::size_t block_bytes = facts.block_bytes(FrameKind::kCkksTotal);
  const auto payload = writer.reserve(blocks * block_bytes);
  const std::size_t threads = threads_for_blocks(blocks);
  ChecksumParts checksums(threads);
  parallel_for(blocks, threads, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<std::uint64_t> digits(facts.block_words());
    std::uint32_t checksum = 0;
    for (std::size_t block = begin; block < end; ++block) {
      const auto sums = std::span(sums_).subspan(block * digits.size(), digits.size());
      std::copy(sums.begin(), sums.end(), digits.begin());
      reduce_digits(facts, digits);
      const auto out = payload.subspan(block * block_bytes, block_bytes);
      pack_digits(facts, FrameKind::kCkksTotal, digits, out);
      checksum = crc32c(out, checksum);
    }
    checksums.add(begin, checksum, (end - begin) * block_bytes);
  });
  writer.finish(checksums.after(head_checksum));
}

}  // namespace shieldfl::ckks
