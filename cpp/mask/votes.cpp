#include "mask/votes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "common/error.h"
#include "mask/vote_kernels.h"
#include "mask/words.h"
#include "parallel/parallel_for.h"

namespace shieldfl::mask {
namespace {

std::size_t planes_for(std::uint64_t voters) {
  return static_cast<std::size_t>(std::bit_width(voters));
}

// Calls body(first word, number of words) for blocks that cover all words, on several threads.
template <typename Body>
void for_each_block(std::size_t words, std::size_t threads, Body body) {
  parallel_for(words, resolve_threads(threads), kVoteGrainWords, [&](std::size_t begin, std::size_t end) {
    for (std::size_t first = begin; first < end; first += kVoteBlockWords) {
      body(first, std::min(kVoteBlockWords, end - first));
    }
  });
}

// The first `positions` counters of a block.
void read_counters(const std::uint64_t* const* planes, std::size_t plane_count, std::uint32_t* out,
                   std::size_t positions) {
  for (std::size_t first = 0; first < positions; first += 8) {
    const std::size_t word = first / kWordBits;
    const std::size_t shift = first % kWordBits;
    std::array<std::uint32_t, 8> counters{};
    // Eight counters at a time, eight of their bits at a time.
    for (std::size_t base = 0; base < plane_count; base += 8) {
      std::uint64_t bytes = 0;
      for (std::size_t j = base; j < std::min(plane_count, base + 8); ++j) {
        bytes |= bits_to_bytes((planes[j][word] >> shift) & 0xff) << (j - base);
      }
      for (std::size_t i = 0; i < 8; ++i) {
        counters[i] |= static_cast<std::uint32_t>((bytes >> (8 * i)) & 0xff) << base;
      }
    }
    std::copy_n(counters.data(), std::min<std::size_t>(8, positions - first), out + first);
  }
}

// Where a block of each plane begins.
template <typename Word, typename Planes>
std::array<Word*, kMaxPlanes> block_of(Planes& planes, std::size_t first) {
  std::array<Word*, kMaxPlanes> block{};
  for (std::size_t j = 0; j < planes.size(); ++j) block[j] = planes[j].data() + first;
  return block;
}

}  // namespace

std::uint64_t votes_needed(double rho, std::uint64_t voters) {
  if (!(rho > 0.0 && rho <= 1.0)) {
    throw Error(ErrorCode::kParameter, "the consensus ratio must be above 0 and at most 1");
  }
  if (voters == 0) {
    throw Error(ErrorCode::kParameter, "a consensus needs at least one mask: none was given");
  }
  const auto total = static_cast<double>(voters);
  const auto enough = [&](std::uint64_t votes) { return static_cast<double>(votes) / total >= rho; };
  auto votes = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(rho * total)));
  while (votes > 1 && enough(votes - 1)) --votes;
  while (!enough(votes)) ++votes;
  return votes;
}

Votes::Votes(std::uint64_t size) : size_(size) {
  check_size(size);
}

std::uint64_t Votes::memory_bytes() const noexcept {
  return planes_.size() * words_for(size_) * sizeof(std::uint64_t);
}

void Votes::add(const Bitset& mask, std::size_t threads) {
  check_same_size(size_, mask.size());
  if (voters_ == std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kCapacity, "the votes hold as many masks as they can count");
  }
  const auto words = mask.words();
  if (planes_.size() < planes_for(voters_ + 1)) planes_.emplace_back(words.size(), 0);
  for_each_block(words.size(), threads, [&](std::size_t first, std::size_t length) {
    const auto planes = block_of<std::uint64_t>(planes_, first);
    vote_kernels(instruction_set()).add_vote(planes.data(), planes_.size(), words.data() + first, length);
  });
  ++voters_;
}

void Votes::counts(std::span<std::uint32_t> out, std::size_t threads) const {
  if (out.size() != size_) {
    throw Error(ErrorCode::kParameter, "the output has " + std::to_string(out.size()) +
                                           " entries and the votes " + std::to_string(size_) + " positions");
  }
  for_each_block(words_for(size_), threads, [&](std::size_t first, std::size_t length) {
    const auto planes = block_of<const std::uint64_t>(planes_, first);
    const std::size_t position = first * kWordBits;
    read_counters(planes.data(), planes_.size(), out.data() + position,
                  std::min<std::size_t>(length * kWordBits, size_ - position));
  });
}

Bitset Votes::at_least(std::uint64_t threshold, std::size_t threads) const {
  if (threshold == 0) return Bitset::full(size_);
  if (threshold > voters_) return Bitset(size_);
  WordVector words(words_for(size_));
  for_each_block(words.size(), threads, [&](std::size_t first, std::size_t length) {
    const auto planes = block_of<const std::uint64_t>(planes_, first);
    vote_kernels(instruction_set())
        .counters_at_least(planes.data(), planes_.size(), threshold, words.data() + first, length);
  });
  return Bitset::from_words(std::move(words), size_);
}

Bitset Votes::consensus(double rho, std::size_t threads) const {
  return at_least(votes_needed(rho, voters_), threads);
}

}  // namespace shieldfl::mask
