#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "mask/bitset.h"
#include "mask/rank_index.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace mask_rank_index_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using tests::Bools;
using tests::kDensities;
using tests::kSizes;
using tests::random_bools;

namespace {

std::vector<std::uint32_t> positions_of(const Bools& bools) {
  std::vector<std::uint32_t> positions;
  for (std::size_t i = 0; i < bools.size(); ++i) {
    if (bools[i] != 0) positions.push_back(static_cast<std::uint32_t>(i));
  }
  return positions;
}

// Value i is i, which both types hold exactly.
template <typename T>
std::vector<T> ramp(std::size_t size) {
  std::vector<T> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<T>(i);
  return values;
}

// Vectors of exactly the length, so that the sanitizer sees a write past it.
template <typename T>
void check_values(const RankIndex& index, const std::vector<T>& dense,
                  const std::vector<std::uint32_t>& positions, std::uint64_t first, std::uint64_t count) {
  std::vector<T> out(count);
  index.gather_values<T>(dense, first, count, out.data());
  for (std::uint64_t i = 0; i < count; ++i) CHECK(out[i] == static_cast<T>(positions[first + i]));
}

}  // namespace

TEST(rank_index_matches_the_list_of_positions) {
  std::mt19937_64 generator(4);
  for (const std::size_t size : kSizes) {
    const auto floats = ramp<float>(size);
    const auto doubles = ramp<double>(size);
    for (const double density : kDensities) {
      const Bools bools = random_bools(size, density, generator);
      const std::vector<std::uint32_t> positions = positions_of(bools);
      const Bitset mask = Bitset::from_bools(bools);
      const RankIndex index(mask);
      CHECK(index.count() == mask.count());
      for (int repeat = 0; repeat < 20; ++repeat) {
        const std::uint64_t first = generator() % (index.count() + 1);
        const std::uint64_t count = generator() % (index.count() - first + 1);
        std::vector<std::uint32_t> out(count);
        index.gather_positions(first, count, out.data());
        CHECK(std::equal(out.begin(), out.end(), positions.begin() + static_cast<std::ptrdiff_t>(first)));
        check_values(index, floats, positions, first, count);
        check_values(index, doubles, positions, first, count);
      }
      check_values(index, floats, positions, 0, index.count());
    }
  }
}

TEST(rank_index_refuses_ranks_and_vectors_that_do_not_fit) {
  const Bitset mask = Bitset::full(100);
  const RankIndex index(mask);
  const std::vector<float> dense(100);
  const std::vector<float> shorter(99);
  CHECK_THROWS((index.gather_positions(0, 101, nullptr), 0), ErrorCode::kParameter);
  CHECK_THROWS((index.gather_positions(1, ~std::uint64_t{0}, nullptr), 0), ErrorCode::kParameter);
  CHECK_THROWS((index.gather_values<float>(dense, 1, 100, nullptr), 0), ErrorCode::kParameter);
  CHECK_THROWS((index.gather_values<float>(dense, 101, 0, nullptr), 0), ErrorCode::kParameter);
  CHECK_THROWS((index.gather_values<float>(shorter, 0, 1, nullptr), 0), ErrorCode::kParameter);
}

TEST(rank_index_does_not_depend_on_threads) {
  std::mt19937_64 generator(5);
  const Bools bools = random_bools(1'000'003, 0.1, generator);
  const std::vector<std::uint32_t> expected = positions_of(bools);
  const Bitset mask = Bitset::from_bools(bools);
  for (const std::size_t threads : {1, 2, 3, 7}) {
    const RankIndex index(mask, threads);
    std::vector<std::uint32_t> positions(index.count());
    // In pieces, so that every block of the index is where a piece begins.
    constexpr std::uint64_t kPiece = 97;
    for (std::uint64_t first = 0; first < index.count(); first += kPiece) {
      index.gather_positions(first, std::min(kPiece, index.count() - first), positions.data() + first);
    }
    CHECK(positions == expected);
  }
}

}  // namespace mask_rank_index_tests
