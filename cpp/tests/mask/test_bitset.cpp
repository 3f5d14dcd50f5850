#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "mask/bitset.h"
#include "mask/words.h"
#include "mask/zones.h"
#include "tests/check.h"
#include "tests/mask/mask_cases.h"

namespace mask_bitset_tests {

using namespace shieldfl;
using namespace shieldfl::mask;
using tests::Bools;
using tests::kDensities;
using tests::kSizes;
using tests::random_bools;

namespace {

std::vector<std::int64_t> indices_of(const Bools& bools) {
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < bools.size(); ++i) {
    if (bools[i] != 0) indices.push_back(static_cast<std::int64_t>(i));
  }
  return indices;
}

Bools bools_of(const Bitset& mask) {
  Bools bools(mask.size(), 0xee);
  mask.to_bools(bools);
  return bools;
}

bool padding_is_zero(const Bitset& mask) {
  return mask.words().size() == words_for(mask.size()) &&
         (mask.words().empty() || (mask.words().back() & ~tail_bits(mask.size())) == 0);
}

}  // namespace

TEST(word_primitives_match_their_definitions) {
  std::mt19937_64 generator(1);
  for (int repeat = 0; repeat < 1000; ++repeat) {
    const std::uint64_t word = generator() & generator();
    std::uint64_t count = 0;
    for (unsigned i = 0; i < 64; ++i) count += (word >> i) & 1;
    CHECK(count_bits(word) == count);
    std::uint64_t bits = 0;
    for (unsigned i = 0; i < 8; ++i) bits |= std::uint64_t{((word >> (8 * i)) & 0xff) != 0} << i;
    CHECK(bytes_to_bits(word) == bits);
  }
  for (std::uint64_t byte = 0; byte < 256; ++byte) {
    for (unsigned i = 0; i < 8; ++i) CHECK(((bits_to_bytes(byte) >> (8 * i)) & 0xff) == ((byte >> i) & 1));
    CHECK(bytes_to_bits(bits_to_bytes(byte)) == byte);
    CHECK(bytes_to_bits(byte << 40) == (byte != 0 ? 32 : 0));
  }
  CHECK(count_bits(kAllOnes) == 64);
}

TEST(bitset_round_trips_bools_and_indices) {
  std::mt19937_64 generator(2);
  for (const std::size_t size : kSizes) {
    for (const double density : kDensities) {
      const Bools bools = random_bools(size, density, generator);
      std::vector<std::int64_t> indices = indices_of(bools);
      const Bitset mask = Bitset::from_bools(bools);
      CHECK(padding_is_zero(mask));
      CHECK(mask.size() == size);
      CHECK(mask.count() == indices.size());
      CHECK(bools_of(mask) == bools);
      std::vector<std::int64_t> found(mask.count());
      mask.to_indices(found);
      CHECK(found == indices);
      for (std::size_t i = 0; i < size; ++i) CHECK(mask.test(i) == (bools[i] != 0));
      std::shuffle(indices.begin(), indices.end(), generator);
      CHECK(Bitset::from_indices(indices, size) == mask);
      CHECK(Bitset::from_words({mask.words().begin(), mask.words().end()}, size) == mask);
    }
  }
}

TEST(bitset_takes_every_nonzero_byte_as_chosen) {
  Bools bytes(200);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
  const Bitset mask = Bitset::from_bools(bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) CHECK(mask.test(i) == (bytes[i] != 0));
}

TEST(bitset_algebra_matches_bools) {
  std::mt19937_64 generator(3);
  for (const std::size_t size : kSizes) {
    for (const double density : kDensities) {
      const Bools a = random_bools(size, density, generator);
      const Bools b = random_bools(size, 0.5, generator);
      const Bitset left = Bitset::from_bools(a);
      const Bitset right = Bitset::from_bools(b);
      Bools both(size);
      Bools either(size);
      Bools difference(size);
      Bools inverse(size);
      for (std::size_t i = 0; i < size; ++i) {
        both[i] = a[i] & b[i];
        either[i] = a[i] | b[i];
        difference[i] = a[i] & (b[i] ^ 1);
        inverse[i] = a[i] ^ 1;
      }
      for (const auto& [result, expected] :
           {std::pair{left & right, both}, std::pair{left | right, either},
            std::pair{left - right, difference}, std::pair{~left, inverse}}) {
        CHECK(padding_is_zero(result));
        CHECK(bools_of(result) == expected);
        CHECK(result.count() == indices_of(expected).size());
      }
      CHECK((left == right) == (a == b));
      CHECK(~~left == left);
    }
    CHECK(Bitset::full(size) == ~Bitset(size));
    CHECK(Bitset::full(size).count() == size);
  }
  CHECK(!(Bitset(64) == Bitset(65)));
}

TEST(bitset_resized_is_cut_or_padded) {
  std::mt19937_64 generator(4);
  for (const std::size_t size : kSizes) {
    const Bools own = random_bools(size, 0.5, generator);
    for (const std::size_t other : kSizes) {
      for (const bool chosen : {false, true}) {
        Bools expected = own;
        expected.resize(other, chosen ? 1 : 0);
        const Bitset resized = Bitset::from_bools(own).resized(other, chosen);
        CHECK(padding_is_zero(resized));
        CHECK(bools_of(resized) == expected);
        CHECK(resized.count() == indices_of(expected).size());
      }
    }
  }
  CHECK_THROWS(Bitset(1).resized(kMaxPositions + 1, true), ErrorCode::kParameter);
}

TEST(bitset_moved_from_is_empty) {
  Bitset mask = Bitset::full(100);
  const Bitset taken = std::move(mask);
  CHECK(taken.count() == 100);
  mask = Bitset::full(7);
  CHECK(mask.size() == 7 && mask.count() == 7);
}

TEST(bitset_refuses_bad_input) {
  const Bitset mask = Bitset::full(65);
  CHECK_THROWS(Bitset(kMaxPositions + 1), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::full(~std::uint64_t{0}), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::from_indices({}, kMaxPositions + 1), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::from_indices(std::vector<std::int64_t>{1, 65}, 65), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::from_indices(std::vector<std::int64_t>{-1}, 65), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::from_indices(std::vector<std::int64_t>{0}, 0), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::from_indices(std::vector<std::int64_t>{3, 2, 3}, 65), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::from_words({0, 2}, 65), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::from_words({0}, 65), ErrorCode::kParameter);
  CHECK_THROWS(mask.test(65), ErrorCode::kParameter);
  CHECK_THROWS(mask & Bitset(64), ErrorCode::kParameter);
  CHECK_THROWS(mask | Bitset(64), ErrorCode::kParameter);
  CHECK_THROWS(mask - Bitset(64), ErrorCode::kParameter);
  Bools bools(64);
  CHECK_THROWS(mask.to_bools(bools), ErrorCode::kParameter);
  std::vector<std::int64_t> indices(64);
  CHECK_THROWS(mask.to_indices(indices), ErrorCode::kParameter);
  try {
    (void)Bitset::from_indices(std::vector<std::int64_t>{5, 9, 5}, 10);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("entry 2") != std::string::npos);
  }
}

TEST(bitset_with_counted_words_is_the_counted_one) {
  std::mt19937_64 generator(7);
  const Bitset mask = tests::random_half(1003, generator);
  const WordVector words(mask.words().begin(), mask.words().end());
  CHECK(Bitset::from_counted_words(words, 1003, mask.count()) == mask);
  CHECK_THROWS(Bitset::from_counted_words(words, 1002 - 64, mask.count()), ErrorCode::kParameter);
  CHECK_THROWS(Bitset::from_counted_words({0, 2}, 65, 1), ErrorCode::kParameter);
}

TEST(content_id_is_the_digest_of_the_words_keyed_with_the_size) {
  std::mt19937_64 generator(8);
  for (const std::size_t size : kSizes) {
    for (const double density : {0.0, 0.3, 1.0}) {
      const Bitset mask = Bitset::from_bools(random_bools(size, density, generator));
      const std::vector<std::uint64_t> key = {size};
      const std::vector<std::uint64_t> content(
          mask.words().begin(), mask.count() == size ? mask.words().begin() : mask.words().end());
      const auto bytes = [](const std::vector<std::uint64_t>& words) {
        return std::span(reinterpret_cast<const std::uint8_t*>(words.data()), words.size() * sizeof words[0]);
      };
      const Id expected = digest(bytes(content), bytes(key));
      CHECK(mask.content_id() == expected);
      CHECK(mask.content_id() == expected);  // the kept one
    }
  }
}

TEST(content_id_goes_with_its_mask) {
  Bitset first = Bitset::from_indices(std::vector<std::int64_t>{3}, 100);
  const Bitset second = Bitset::from_indices(std::vector<std::int64_t>{4}, 100);
  const Id first_id = first.content_id();
  const Id second_id = second.content_id();
  CHECK(first_id != second_id);
  const Bitset copy = first;
  CHECK(copy.content_id() == first_id);
  Bitset moved = std::move(first);
  CHECK(moved.content_id() == first_id);
  moved = second;
  CHECK(moved.content_id() == second_id);
  moved = Bitset::from_indices(std::vector<std::int64_t>{5}, 100);  // not asked for before
  CHECK(moved.content_id() != second_id && moved.content_id() != first_id);
  CHECK(copy.content_id() == first_id);
  CHECK((copy & copy).content_id() == first_id);
}

TEST(content_id_may_be_asked_for_by_several_threads) {
  std::mt19937_64 generator(9);
  for (int repeat = 0; repeat < 50; ++repeat) {
    const Bitset mask = tests::random_half(5000, generator);
    const Id expected = Bitset(mask).content_id();
    std::array<Id, 4> ids{};
    std::vector<std::thread> threads;
    for (Id& id : ids)
      threads.emplace_back(
          [&] { id = Bitset(mask).content_id() == mask.content_id() ? mask.content_id() : Id{}; });
    for (std::thread& thread : threads) thread.join();
    for (const Id& id : ids) CHECK(id == expected);
  }
}

TEST(zones_are_disjoint_and_cover_everything) {
  std::mt19937_64 generator(6);
  for (const std::size_t size : kSizes) {
    for (const double density : kDensities) {
      const Bools local = random_bools(size, density, generator);
      const Bools encrypted = random_bools(size, 0.3, generator);
      const Zones zones = split_zones(Bitset::from_bools(local), Bitset::from_bools(encrypted));
      for (std::size_t i = 0; i < size; ++i) {
        CHECK(zones.encrypted.test(i) == (encrypted[i] != 0));
        CHECK(zones.personalised.test(i) == (local[i] != 0 && encrypted[i] == 0));
        CHECK(zones.noise.test(i) == (local[i] == 0 && encrypted[i] == 0));
      }
    }
  }
  CHECK_THROWS(split_zones(Bitset(64), Bitset(65)), ErrorCode::kParameter);
}

TEST(zones_that_overlap_or_leave_gaps_are_refused) {
  const Bitset low = Bitset::from_indices(std::vector<std::int64_t>{0, 1, 2}, 100);
  check_zones({low, Bitset(100), ~low});
  CHECK_THROWS((check_zones({low, low, ~low}), 0), ErrorCode::kInternal);
  CHECK_THROWS((check_zones({low, Bitset(100), Bitset(100)}), 0), ErrorCode::kInternal);
  // As many members as positions, with one of them twice and one left out.
  const Bitset shifted = Bitset::from_indices(std::vector<std::int64_t>{1, 2, 3}, 100);
  CHECK_THROWS((check_zones({shifted, Bitset(100), ~low}), 0), ErrorCode::kInternal);
  CHECK_THROWS((check_zones({low, Bitset(99), ~low}), 0), ErrorCode::kParameter);
}

}  // namespace mask_bitset_tests
