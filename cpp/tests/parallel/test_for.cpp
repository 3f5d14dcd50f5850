#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "parallel/parallel_for.h"
#include "tests/check.h"

namespace parallel_for_tests {

using namespace shieldfl;

namespace {

using Ranges = std::set<std::pair<std::size_t, std::size_t>>;

Ranges ranges_of(std::size_t count, std::size_t threads, std::size_t grain) {
  std::mutex mutex;
  Ranges ranges;
  parallel_for(count, threads, grain, [&](std::size_t begin, std::size_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace(begin, end);
  });
  return ranges;
}

}  // namespace

TEST(parallel_for_covers_every_index_once) {
  for (const std::size_t count : {0, 1, 2, 3, 7, 8, 63, 64, 65, 100, 1000}) {
    for (const std::size_t threads : {1, 2, 3, 5, 8}) {
      for (const std::size_t grain : {0, 1, 2, 3, 8, 64, 5000}) {
        std::size_t next = 0;
        for (const auto& [begin, end] : ranges_of(count, threads, grain)) {
          CHECK(begin == next && begin < end);
          CHECK(grain == 0 || begin % grain == 0);
          next = end;
        }
        CHECK(next == count);
      }
    }
  }
}

TEST(parallel_for_splits_the_same_way_every_time) {
  for (int i = 0; i < 20; ++i) CHECK(ranges_of(1001, 4, 10) == ranges_of(1001, 4, 10));
  CHECK(ranges_of(1001, 4, 10).size() == 4);
  CHECK(ranges_of(3, 100, 1).size() == 3);  // no more ranges than grains
  CHECK(ranges_of(10, 0, 1).size() == 1);   // at least one thread
}

TEST(parallel_for_rethrows_once_all_ranges_have_ended) {
  for (const std::size_t threads : {1, 2, 4}) {
    for (std::size_t thrower = 0; thrower < 4; ++thrower) {
      std::atomic<int> ended = 0;
      bool thrown = false;
      try {
        parallel_for(threads, threads, 1, [&](std::size_t begin, std::size_t) {
          ++ended;
          if (begin == thrower % threads) throw std::out_of_range("a range");
        });
      } catch (const std::out_of_range& error) {
        thrown = std::string(error.what()) == "a range";
      }
      CHECK(thrown);
      CHECK(ended == static_cast<int>(threads));
    }
  }
  // All of them at once: one comes through.
  bool thrown = false;
  try {
    parallel_for(4, 4, 1, [](std::size_t, std::size_t) { throw std::out_of_range("all ranges"); });
  } catch (const std::out_of_range&) {
    thrown = true;
  }
  CHECK(thrown);
}

TEST(parallel_for_can_be_nested) {
  std::atomic<std::size_t> sum = 0;
  parallel_for(10, 3, 1, [&](std::size_t begin, std::size_t end) {
    parallel_for(end - begin, 2, 1, [&](std::size_t first, std::size_t last) { sum += last - first; });
  });
  CHECK(sum == 10);
}

TEST(numbers_of_threads_are_resolved) {
  CHECK(available_threads() >= 1);
  CHECK(resolve_threads(0) == available_threads());
  CHECK(resolve_threads(1) == 1);
  CHECK(resolve_threads(1024) == 1024);
  CHECK_THROWS(resolve_threads(1025), ErrorCode::kParameter);
  CHECK_THROWS(resolve_threads(~std::size_t{0}), ErrorCode::kParameter);
}

TEST(an_open_number_of_threads_is_what_the_work_is_worth) {
  const std::size_t all = available_threads();
  CHECK(threads_for(0, 0, 16) == 1);
  CHECK(threads_for(0, 31, 16) == 1);
  CHECK(threads_for(0, 32, 16) == std::min<std::size_t>(2, all));
  CHECK(threads_for(0, 16 * 4096, 16) == all);
  CHECK(threads_for(0, 16 * 4096, 0) == all);
  // Who says a number gets it, and the split that goes with it.
  CHECK(threads_for(5, 1, 1000) == 5);
  CHECK_THROWS(threads_for(1025, 1, 1), ErrorCode::kParameter);
}

TEST(parallel_for_counts_the_threads_that_it_starts) {
  const auto before = threads_started();
  CHECK(ranges_of(1000, 1, 1).size() == 1);
  CHECK(ranges_of(10, 4, 100).size() == 1);
  CHECK(threads_started() == before);
  CHECK(ranges_of(1000, 4, 1).size() == 4);
  CHECK(threads_started() == before + 3);
}

}  // namespace parallel_for_tests
