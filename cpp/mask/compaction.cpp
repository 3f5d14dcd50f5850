#include "mask/compaction.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "common/verify.h"
#include "mask/gather_kernels.h"
#include "mask/rank_index.h"
#include "mask/words.h"
#include "parallel/parallel_for.h"

namespace shieldfl::mask {
namespace {

// What a thread must have to do before it is worth its start; a whole number of blocks of the index.
constexpr std::size_t kGrainWords = 64 * RankIndex::kBlockWords;

// Calls move(position, rank, length) for runs of chosen positions that cover all of them: 64 at a time where
// a word is full, else one by one.
template <typename Move>
void visit_words(std::span<const std::uint64_t> words, std::size_t begin, std::size_t end, std::uint64_t rank,
                 Move move) {
  for (std::size_t w = begin; w < end; ++w) {
    if (words[w] == kAllOnes) {
      move(w * kWordBits, rank, kWordBits);
      rank += kWordBits;
    } else {
      for_each_bit(words[w], w * kWordBits, [&](std::uint64_t position) { move(position, rank++, 1); });
    }
  }
}

// Calls body(begin, end, rank, count) for ranges of words, from several threads: how many positions are
// chosen before and in them. No range is empty.
template <typename Body>
void for_each_part(const Bitset& mask, std::size_t threads, Body body) {
  const std::size_t words = mask.words().size();
  const std::size_t used = threads_for(threads, words, kGrainWords);
  if (words == 0) return;
  if (used == 1 || words <= kGrainWords) {
    body(0, words, 0, mask.count());
    return;
  }
  const RankIndex index(mask, threads);
  parallel_for(words, used, kGrainWords, [&](std::size_t begin, std::size_t end) {
    VERIFY(begin < end && begin % RankIndex::kBlockWords == 0);
    const std::uint64_t rank = index.rank_of_block(begin / RankIndex::kBlockWords);
    const std::uint64_t end_rank =
        index.rank_of_block((end + RankIndex::kBlockWords - 1) / RankIndex::kBlockWords);
    body(begin, end, rank, end_rank - rank);
  });
}

template <typename Move>
void visit(const Bitset& mask, std::size_t threads, Move move) {
  for_each_part(mask, threads,
                [&](std::size_t begin, std::size_t end, std::uint64_t rank, std::uint64_t /*count*/) {
                  visit_words(mask.words(), begin, end, rank, move);
                });
}

}  // namespace

template <typename T>
void gather(const T* dense, const Bitset& mask, T* compact, std::size_t threads) {
  const auto words = mask.words();
  for_each_part(mask, threads,
                [&](std::size_t begin, std::size_t /*end*/, std::uint64_t rank, std::uint64_t count) {
                  gather_kernel<T>(instruction_set())(dense + begin * kWordBits, words.data() + begin,
                                                      words[begin], compact + rank, count);
                });
}

template <typename T>
void scatter(const T* compact, const Bitset& mask, T* dense, std::size_t threads) {
  visit(mask, threads, [=](std::uint64_t position, std::uint64_t rank, std::uint64_t length) {
    std::copy_n(compact + rank, length, dense + position);
  });
}

template <typename T>
void scatter_add(const T* compact, const Bitset& mask, T* dense, std::size_t threads) {
  visit(mask, threads, [=](std::uint64_t position, std::uint64_t rank, std::uint64_t length) {
    T* const target = dense + position;
    std::transform(target, target + length, compact + rank, target, std::plus<T>());
  });
}

template void gather<float>(const float*, const Bitset&, float*, std::size_t);
template void gather<double>(const double*, const Bitset&, double*, std::size_t);
template void scatter<float>(const float*, const Bitset&, float*, std::size_t);
template void scatter<double>(const double*, const Bitset&, double*, std::size_t);
template void scatter_add<float>(const float*, const Bitset&, float*, std::size_t);
template void scatter_add<double>(const double*, const Bitset&, double*, std::size_t);

}  // namespace shieldfl::mask
