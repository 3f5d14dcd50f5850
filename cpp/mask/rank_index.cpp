#include "mask/rank_index.h"

#include <algorithm>
#include <bit>
#include <string>

#include "common/error.h"
#include "common/verify.h"
#include "mask/gather_kernels.h"
#include "mask/word_kernels.h"
#include "mask/words.h"
#include "parallel/parallel_for.h"

namespace shieldfl::mask {
namespace {

constexpr std::size_t kGrainBlocks = 64;
// Counting a block takes some 20 ns.
constexpr std::size_t kBlocksWorthCounting = std::size_t{1} << 13;

}  // namespace

RankIndex::RankIndex(const Bitset& mask, std::size_t threads) : mask_(&mask) {
  const auto words = mask.words();
  const std::size_t blocks = (words.size() + kBlockWords - 1) / kBlockWords;
  const WordKernels& kernels = word_kernels(instruction_set());
  before_.assign(blocks + 1, 0);
  const std::size_t used = threads_for(threads, blocks, kBlocksWorthCounting);
  parallel_for(blocks, used, kGrainBlocks, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      const std::size_t first = block * kBlockWords;
      const std::size_t length = std::min<std::size_t>(kBlockWords, words.size() - first);
      before_[block + 1] = static_cast<std::uint32_t>(kernels.count(words.data() + first, length));
    }
  });
  for (std::size_t block = 0; block < blocks; ++block) before_[block + 1] += before_[block];
}

RankIndex::Place RankIndex::locate(std::uint64_t rank) const {
  VERIFY(rank < count());
  const auto after = std::upper_bound(before_.begin(), before_.end(), rank);
  const auto block = static_cast<std::uint64_t>(after - before_.begin()) - 1;
  const auto words = mask_->words();
  std::uint64_t left = rank - before_[block];
  std::uint64_t word_index = block * kBlockWords;
  for (std::uint64_t here; (here = count_bits(words[word_index])) <= left; ++word_index) left -= here;
  std::uint64_t word = words[word_index];
  for (; left != 0; --left) word &= word - 1;
  return {word_index, word};
}

void RankIndex::check_ranks(std::uint64_t first_rank, std::uint64_t count) const {
  if (first_rank > this->count() || count > this->count() - first_rank) {
    throw Error(ErrorCode::kParameter, "ranks " + std::to_string(first_rank) + " to " +
                                           std::to_string(first_rank + count) + " go past the mask's " +
                                           std::to_string(this->count()) + " chosen positions");
  }
}

void RankIndex::gather_positions(std::uint64_t first_rank, std::uint64_t count, std::uint32_t* out) const {
  check_ranks(first_rank, count);
  if (count == 0) return;
  const std::uint64_t* const words = mask_->words().data();
  std::uint32_t* const end = out + count;
  auto [word_index, word] = locate(first_rank);
  for (;; word = words[++word_index]) {
    const auto first = static_cast<std::uint32_t>(word_index * kWordBits);
    for (; word != 0; word &= word - 1) {
      *out++ = first + static_cast<std::uint32_t>(std::countr_zero(word));
      if (out == end) return;
    }
  }
}

template <typename T>
void RankIndex::gather_values(std::span<const T> dense, std::uint64_t first_rank, std::uint64_t count,
                              T* out) const {
  check_same_size(mask_->size(), dense.size());
  check_ranks(first_rank, count);
  if (count == 0) return;
  const Place place = locate(first_rank);
  gather_kernel<T>(instruction_set())(dense.data() + place.word_index * kWordBits,
                                      mask_->words().data() + place.word_index, place.word, out, count);
}

template void RankIndex::gather_values(std::span<const float>, std::uint64_t, std::uint64_t, float*) const;
template void RankIndex::gather_values(std::span<const double>, std::uint64_t, std::uint64_t, double*) const;

}  // namespace shieldfl::mask
