// Every instruction set against the scalar kernels, and these against their definitions. Vectors have exactly
// the length that is used, so that the sanitizer sees what goes past it.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "mask/gather_kernels.h"
#include "mask/vote_kernels.h"
#include "mask/word_kernels.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace mask_kernels_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using tests::kDensities;
using tests::random_bools;
using tests::random_words;

namespace {

constexpr std::size_t kWordCounts[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,   15,
                                       16, 17, 31, 32, 33, 63, 64, 65, 255, 257};
constexpr std::size_t kManyWords = 1'000'003 / 64 + 1;

WordVector words_of(std::size_t words, double density, std::mt19937_64& generator) {
  const tests::Bools bools = random_bools(64 * words, density, generator);
  const Bitset mask = Bitset::from_bools(bools);
  return {mask.words().begin(), mask.words().end()};
}

template <typename T>
void check_gather(const WordVector& words, std::mt19937_64& generator) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < 64 * words.size(); ++i) {
    if (((words[i / 64] >> (i % 64)) & 1) != 0) positions.push_back(i);
  }
  if (positions.empty()) return;
  // Dense values up to the last chosen position and not one more.
  std::vector<T> dense(positions.back() + 1);
  for (T& value : dense) value = static_cast<T>(static_cast<std::int32_t>(generator()));
  for (int repeat = 0; repeat < 8; ++repeat) {
    const std::size_t skipped = repeat == 0 ? 0 : generator() % std::min<std::size_t>(positions.size(), 64);
    const std::size_t count = repeat == 0 ? positions.size() : generator() % (positions.size() - skipped + 1);
    const std::size_t begin = positions[skipped] / 64;
    const std::uint64_t first = words[begin] & (~std::uint64_t{0} << (positions[skipped] % 64));
    std::vector<T> expected(count);
    for (std::size_t i = 0; i < count; ++i) expected[i] = dense[positions[skipped + i]];
    for (const InstructionSet set : supported_instruction_sets()) {
      std::vector<T> out(count);
      gather_kernel<T>(set)(dense.data() + 64 * begin, words.data() + begin, first, out.data(), count);
      CHECK(out == expected);
    }
  }
}

std::vector<WordVector> random_planes(std::size_t planes, std::size_t words, std::mt19937_64& generator) {
  std::vector<WordVector> result;
  for (std::size_t j = 0; j < planes; ++j) result.push_back(random_words(words, generator));
  return result;
}

template <typename Word, typename Planes>
std::vector<Word*> starts(Planes& planes) {
  std::vector<Word*> result;
  for (auto& plane : planes) result.push_back(plane.data());
  return result;
}

std::uint64_t counter_at(const std::vector<WordVector>& planes, std::size_t position) {
  std::uint64_t counter = 0;
  for (std::size_t j = 0; j < planes.size(); ++j) {
    counter |= ((planes[j][position / 64] >> (position % 64)) & 1) << j;
  }
  return counter;
}

}  // namespace

TEST(word_kernels_agree) {
  std::mt19937_64 generator(51);
  for (const std::size_t count : kWordCounts) {
    for (const double density : kDensities) {
      const WordVector words = words_of(count, density, generator);
      std::uint64_t set_bits = 0;
      for (const std::uint64_t word : words) set_bits += static_cast<std::uint64_t>(std::popcount(word));
      std::vector<std::uint8_t> bytes(64 * count);
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool chosen = ((words[i / 64] >> (i % 64)) & 1) != 0;
        bytes[i] = static_cast<std::uint8_t>(chosen ? 1 + generator() % 255 : 0);  // every byte but 0 counts
      }
      for (const InstructionSet set : supported_instruction_sets()) {
        const WordKernels& kernels = word_kernels(set);
        CHECK(kernels.count(words.data(), count) == set_bits);
        WordVector packed(count);
        CHECK(kernels.from_bytes(bytes.data(), packed.data(), count) == set_bits);
        CHECK(packed == words);
        std::vector<std::uint8_t> unpacked(64 * count, 0xee);
        kernels.to_bytes(words.data(), unpacked.data(), count);
        for (std::size_t i = 0; i < bytes.size(); ++i) CHECK(unpacked[i] == (bytes[i] != 0 ? 1 : 0));
      }
    }
  }
}

TEST(gather_kernels_agree) {
  std::mt19937_64 generator(52);
  for (const std::size_t count : kWordCounts) {
    for (const double density : kDensities) {
      check_gather<float>(words_of(count, density, generator), generator);
      check_gather<double>(words_of(count, density, generator), generator);
    }
  }
  // Full and empty words between others, as structured masks have them.
  for (int repeat = 0; repeat < 200; ++repeat) {
    WordVector words = random_words(40, generator);
    for (std::uint64_t& word : words) {
      const std::uint64_t kind = generator() % 4;
      if (kind == 0) word = 0;
      if (kind == 1) word = ~std::uint64_t{0};
      if (kind == 2) word &= generator() & generator() & generator();
    }
    check_gather<float>(words, generator);
    check_gather<double>(words, generator);
  }
  check_gather<float>(words_of(kManyWords, 0.1, generator), generator);
  check_gather<double>(words_of(kManyWords, 0.02, generator), generator);
}

TEST(vote_kernels_count_up_by_one_vote) {
  std::mt19937_64 generator(53);
  for (const std::size_t count : kWordCounts) {
    for (std::size_t plane_count = 1; plane_count <= 12; ++plane_count) {
      for (const std::uint64_t sparse : {std::uint64_t{0}, generator(), ~std::uint64_t{0}}) {
        WordVector mask = random_words(count, generator);
        for (std::uint64_t& word : mask) word &= sparse;
        auto before = random_planes(plane_count, count, generator);
        // The highest plane is clear, so that no counter overflows.
        std::ranges::fill(before.back(), 0);
        if (plane_count == 1) std::ranges::fill(before.front(), 0);
        for (const InstructionSet set : supported_instruction_sets()) {
          auto planes = before;
          vote_kernels(set).add_vote(starts<std::uint64_t>(planes).data(), plane_count, mask.data(), count);
          for (std::size_t i = 0; i < 64 * count; ++i) {
            CHECK(counter_at(planes, i) == counter_at(before, i) + ((mask[i / 64] >> (i % 64)) & 1));
          }
        }
      }
    }
  }
}

TEST(vote_kernels_compare_counters) {
  std::mt19937_64 generator(54);
  for (const std::size_t count : kWordCounts) {
    for (std::size_t plane_count = 1; plane_count <= 10; plane_count += 3) {
      const auto planes = random_planes(plane_count, count, generator);
      const std::uint64_t limit = std::uint64_t{1} << plane_count;
      for (const std::uint64_t threshold : {std::uint64_t{0}, std::uint64_t{1}, limit / 2, limit - 1}) {
        for (const InstructionSet set : supported_instruction_sets()) {
          WordVector out = random_words(count, generator);
          vote_kernels(set).counters_at_least(starts<const std::uint64_t>(planes).data(), plane_count,
                                              threshold, out.data(), count);
          for (std::size_t i = 0; i < 64 * count; ++i) {
            CHECK(((out[i / 64] >> (i % 64)) & 1) == (counter_at(planes, i) >= threshold ? 1 : 0));
          }
        }
      }
    }
  }
}

TEST(vote_kernels_agree_on_who_was_chosen) {
  std::mt19937_64 generator(55);
  constexpr std::size_t kFirst = 3;  // blocks begin anywhere in a mask
  for (std::size_t clients = 1; clients <= 130; ++clients) {
    const std::size_t count = kWordCounts[generator() % std::size(kWordCounts)] % 40;
    std::vector<WordVector> masks;
    for (std::size_t client = 0; client < clients; ++client) {
      masks.push_back(random_words(kFirst + count, generator));
    }
    const auto pointers = starts<const std::uint64_t>(masks);
    std::vector<std::uint64_t> votes(64 * count);
    for (const WordVector& mask : masks) {
      for (std::size_t i = 0; i < votes.size(); ++i) votes[i] += (mask[kFirst + i / 64] >> (i % 64)) & 1;
    }
    for (const std::size_t threshold :
         {std::size_t{1}, clients / 2 + 1, clients, 1 + generator() % clients}) {
      for (const InstructionSet set : supported_instruction_sets()) {
        WordVector out = random_words(count, generator);
        vote_kernels(set).chosen_by(pointers.data(), clients, kFirst, threshold, out.data(), count);
        for (std::size_t i = 0; i < votes.size(); ++i) {
          CHECK(((out[i / 64] >> (i % 64)) & 1) == (votes[i] >= threshold ? 1 : 0));
        }
      }
    }
  }
}

TEST(vote_kernels_agree_on_every_threshold_of_full_and_empty_masks) {
  // All counters of k votes, for every k: the planes above the third carry over in every way.
  constexpr std::size_t kClients = 70;
  const WordVector full(9, ~std::uint64_t{0});
  const WordVector empty(9, 0);
  for (std::size_t chosen = 0; chosen <= kClients; ++chosen) {
    std::vector<const std::uint64_t*> masks(kClients, empty.data());
    std::fill_n(masks.begin(), chosen, full.data());
    for (std::size_t threshold = 1; threshold <= kClients; ++threshold) {
      for (const InstructionSet set : supported_instruction_sets()) {
        WordVector out(9, 0x5555555555555555);
        vote_kernels(set).chosen_by(masks.data(), kClients, 0, threshold, out.data(), out.size());
        CHECK(out == (chosen >= threshold ? full : empty));
      }
    }
  }
}

TEST(vote_kernels_agree_on_zones) {
  std::mt19937_64 generator(56);
  for (const std::size_t count : kWordCounts) {
    const WordVector local = random_words(count, generator);
    const WordVector encrypted = random_words(count, generator);
    std::uint64_t expected = 0;
    for (std::size_t w = 0; w < count; ++w) {
      expected += static_cast<std::uint64_t>(std::popcount(local[w] & ~encrypted[w]));
    }
    for (const InstructionSet set : supported_instruction_sets()) {
      WordVector personalised(count, 0);
      WordVector noise(count, 0);
      CHECK(vote_kernels(set).split(local.data(), encrypted.data(), personalised.data(), noise.data(),
                                    count) == expected);
      for (std::size_t w = 0; w < count; ++w) {
        CHECK(personalised[w] == (local[w] & ~encrypted[w]));
        CHECK(noise[w] == ~(local[w] | encrypted[w]));
      }
    }
  }
}

}  // namespace mask_kernels_tests
