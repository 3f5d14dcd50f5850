#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "scheme/value_pieces.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace scheme_value_pieces_tests {

using namespace shieldfl;
using namespace shieldfl::scheme;

namespace {

// The numbers from 0 on, in arrays of these lengths.
template <typename T>
struct Numbers {
  explicit Numbers(const std::vector<std::size_t>& lengths)
      : whole(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0})) {
    std::iota(whole.begin(), whole.end(), T{0});
    auto begin = whole.begin();
    for (const std::size_t length : lengths) {
      arrays.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(length));
      begin += static_cast<std::ptrdiff_t>(length);
    }
  }

  [[nodiscard]] ValuePieces<T> pieces() const {
    return ValuePieces<T>(std::vector<std::span<const T>>(arrays.begin(), arrays.end()));
  }

  std::vector<T> whole;
  std::vector<std::vector<T>> arrays;
};

template <typename T>
void check_pieces(const std::vector<std::size_t>& lengths) {
  std::mt19937_64 generator(171);
  const Numbers<T> numbers(lengths);
  const std::size_t size = numbers.whole.size();
  const ValuePieces<T> pieces = numbers.pieces();
  CHECK(pieces.size() == size);
  SecretVector<T> scratch;
  for (int repetition = 0; repetition < 200; ++repetition) {
    const std::size_t first = generator() % size;
    const std::size_t count = generator() % (size - first + 1);
    const std::span<const T> read = pieces.read(first, count, scratch);
    CHECK(std::equal(read.begin(), read.end(), numbers.whole.begin() + static_cast<std::ptrdiff_t>(first),
                     numbers.whole.begin() + static_cast<std::ptrdiff_t>(first + count)));
    CHECK(pieces[first] == numbers.whole[first]);
  }

  const tests::Bools bools = tests::random_bools(size, 0.4, generator);
  const mask::Bitset mask = mask::Bitset::from_bools(bools);
  const mask::RankIndex ranks(mask, 1);
  std::vector<T> expected(mask.count());
  ranks.gather_values(std::span<const T>(numbers.whole), 0, expected.size(), expected.data());
  for (int repetition = 0; repetition < 100 && !expected.empty(); ++repetition) {
    const std::size_t first = generator() % expected.size();
    std::vector<T> out(generator() % (expected.size() - first + 1));
    pieces.gather(ranks, first, out);
    CHECK(std::equal(out.begin(), out.end(), expected.begin() + static_cast<std::ptrdiff_t>(first)));
  }
}

}  // namespace

TEST(values_are_the_same_in_whichever_pieces_they_lie) {
  for (const auto& lengths : std::vector<std::vector<std::size_t>>{
           {1}, {5000}, {1, 1, 1}, {0, 3, 0, 0, 4}, {4096, 1, 4095, 0, 700}, {64, 64, 3000, 2}}) {
    check_pieces<float>(lengths);
    check_pieces<double>(lengths);
  }
}

TEST(values_in_one_array_are_read_where_they_lie) {
  const Numbers<double> numbers({100, 50});
  SecretVector<double> scratch;
  CHECK(numbers.pieces().read(10, 90, scratch).data() == numbers.arrays[0].data() + 10);
  CHECK(numbers.pieces().read(100, 50, scratch).data() == numbers.arrays[1].data());
  CHECK(scratch.empty());
  CHECK(numbers.pieces().read(99, 2, scratch).data() == scratch.data());
}

TEST(pieces_without_values_are_an_update_of_none) {
  const ValuePieces<float> none(std::vector<std::span<const float>>{});
  SecretVector<float> scratch;
  CHECK(none.size() == 0 && none.read(0, 0, scratch).empty());
}

TEST(pieces_are_gathered_by_masks_of_their_size_alone) {
  const mask::Bitset mask = mask::Bitset::from_indices(std::vector<std::int64_t>{0, 5, 8}, 9);
  const mask::RankIndex ranks(mask, 1);
  std::vector<double> out(3);
  Numbers<double>({4, 5}).pieces().gather(ranks, 0, out);
  CHECK((out == std::vector<double>{0.0, 5.0, 8.0}));
  CHECK_THROWS(Numbers<double>({4, 4}).pieces().gather(ranks, 0, out), ErrorCode::kParameter);
  CHECK_THROWS(Numbers<double>({8}).pieces().gather(ranks, 0, out), ErrorCode::kParameter);
  CHECK_THROWS(Numbers<double>({4, 5}).pieces().gather(ranks, 1, out), ErrorCode::kParameter);
}

}  // namespace scheme_value_pieces_tests
