#include <cstdint>
#include <random>
#include <vector>

#include "mask/bitset.h"
#include "mask/compaction.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace mask_compaction_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using tests::Bools;
using tests::kDensities;
using tests::kSizes;
using tests::random_bools;

namespace {

template <typename T>
std::vector<T> random_values(std::size_t count, std::mt19937_64& generator) {
  std::normal_distribution<T> distribution;
  std::vector<T> values(count);
  for (T& value : values) value = distribution(generator);
  return values;
}

// All three against the loop that defines them; vectors of the exact length, for the sanitizer.
template <typename T>
void check_compaction(const Bools& bools, std::size_t threads, std::mt19937_64& generator) {
  const Bitset mask = Bitset::from_bools(bools);
  const auto dense = random_values<T>(bools.size(), generator);
  const auto compact = random_values<T>(mask.count(), generator);
  std::vector<T> gathered(mask.count());
  std::vector<T> scattered = dense;
  std::vector<T> added = dense;
  gather(dense.data(), mask, gathered.data(), threads);
  scatter(compact.data(), mask, scattered.data(), threads);
  scatter_add(compact.data(), mask, added.data(), threads);

  std::size_t rank = 0;
  for (std::size_t i = 0; i < bools.size(); ++i) {
    if (bools[i] == 0) {
      CHECK(scattered[i] == dense[i] && added[i] == dense[i]);
      continue;
    }
    CHECK(gathered[rank] == dense[i]);
    CHECK(scattered[i] == compact[rank]);
    CHECK(added[i] == dense[i] + compact[rank]);
    ++rank;
  }
  CHECK(rank == mask.count());
}

}  // namespace

TEST(compaction_matches_the_definition) {
  std::mt19937_64 generator(31);
  for (const std::size_t size : kSizes) {
    for (const double density : kDensities) {
      check_compaction<float>(random_bools(size, density, generator), 1, generator);
      check_compaction<double>(random_bools(size, density, generator), 0, generator);
    }
  }
}

TEST(compaction_does_not_depend_on_threads) {
  std::mt19937_64 generator(32);
  for (const double density : {0.02, 0.995}) {  // runs one by one, and whole words
    const Bools bools = random_bools(900'001, density, generator);
    for (const std::size_t threads : {1, 2, 3, 7}) {
      check_compaction<float>(bools, threads, generator);
      check_compaction<double>(bools, threads, generator);
    }
  }
}

TEST(compaction_refuses_an_absurd_number_of_threads) {
  const float value = 1;
  float out = 0;
  CHECK_THROWS((gather(&value, Bitset::full(1), &out, 100'000), 0), ErrorCode::kParameter);
}

}  // namespace mask_compaction_tests
