#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "paillier/randomizer_pool.h"
#include "paillier/randomizers.h"
#include "tests/check.h"
#include "tests/paillier/paillier_batches.h"

namespace paillier_pool_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::Frame;
using tests::key_pair;

namespace {

using Pair = std::vector<std::uint64_t>;

// The thread sanitizer ends a child process that starts threads, and so does qemu's emulation of a processor.
#if defined(__SANITIZE_THREAD__) || defined(SHIELDFL_EMULATED)
constexpr bool kChildrenMayStartThreads = false;
#else
constexpr bool kChildrenMayStartThreads = true;
#endif

// A lock of the address sanitizer's allocator that a thread holds at the fork stays locked in the child for
// good.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kForksWhileThreadsWork = false;
#else
constexpr bool kForksWhileThreadsWork = true;
#endif

std::shared_ptr<const PublicKey> public_key() {
  return key_pair(tests::kDenseParameters).public_key;
}

std::vector<Pair> take(RandomizerPool& pool, const PublicKey& key, std::size_t count) {
  const std::size_t words = key.engine().pair_words();
  Pair pairs(count * words);
  pairs.resize(pool.take(pairs) * words);
  std::vector<Pair> taken;
  for (auto place = pairs.begin(); place != pairs.end(); place += static_cast<std::ptrdiff_t>(words)) {
    taken.emplace_back(place, place + static_cast<std::ptrdiff_t>(words));
  }
  return taken;
}

// An n-th residue becomes 1 when raised to the power lambda = (p - 1)(q - 1): it decrypts to zero.
bool is_randomizer(const KeyPair& keys, const Pair& pair) {
  Pair residue(pair.size());
  keys.public_key->engine().to_residues(pair, residue);
  Pair plaintext(keys.public_key->engine().words());
  keys.secret_key->decrypt(residue, plaintext);
  return std::ranges::all_of(plaintext, [](std::uint64_t word) { return word == 0; });
}

}  // namespace

TEST(randomizers_depend_on_seed_and_number_alone) {
  InsecureTestRandom seeds(411);
  const Seed seed = seeds.next();
  for (const Parameters& parameters : {tests::kDenseParameters, tests::kClassicalParameters}) {
    const KeyPair& keys = key_pair(parameters);
    const std::size_t words = keys.public_key->engine().pair_words();
    Pair all(20 * words);
    make_randomizers(*keys.public_key, seed, 5, false, all);
    Pair vartime(all.size());
    make_randomizers(*keys.public_key, seed, 5, true, vartime);
    CHECK(all == vartime);
    std::set<Pair> different;
    for (std::size_t i = 0; i < 20; ++i) {
      Pair one(words);
      make_randomizers(*keys.public_key, seed, 5 + i, false, one);
      CHECK(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(i * words)));
      CHECK(is_randomizer(keys, one));
      different.insert(one);
    }
    CHECK(different.size() == 20);
  }
}

TEST(randomizers_of_a_pool_are_used_once) {
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  RandomizerPool pool(keys.public_key);
  CHECK(pool.available() == 0);
  CHECK(take(pool, *keys.public_key, 3).empty());
  pool.precompute(0, 1, false);
  pool.wait();
  pool.precompute(50, 2, false);
  pool.precompute(7, 0, true);
  pool.wait();
  CHECK(pool.available() == 57);
  std::set<Pair> different;
  for (const std::size_t count : {1U, 20U, 0U, 30U, 30U}) {
    for (const Pair& pair : take(pool, *keys.public_key, count)) {
      CHECK(is_randomizer(keys, pair));
      different.insert(pair);
    }
  }
  CHECK(different.size() == 57 && pool.available() == 0);
  pool.precompute(3, 1, false);
  pool.wait();
  CHECK(take(pool, *keys.public_key, 3).size() == 3);
}

TEST(encryption_takes_from_a_pool_as_long_as_it_lasts) {
  SystemSeedSource seeds;
  std::mt19937_64 generator(412);
  const KeyPair& keys = key_pair(tests::kSingleParameters);
  RandomizerPool pool(keys.public_key);
  pool.precompute(30, 2, false);
  pool.wait();
  for (const std::size_t left : {10U, 0U}) {
    const auto integers = tests::random_integers(tests::kSingleParameters, 20, generator);
    EncryptOptions options;
    options.threads = 2;
    const Frame frame = tests::encrypt(*keys.public_key, tests::to_values(tests::kSingleParameters, integers),
                                       seeds, options, nullptr, &pool);
    CHECK(pool.available() == left);
    Aggregator aggregator(keys.public_key, std::nullopt, 1);
    aggregator.add(frame);
    CHECK(tests::open_integers(keys, tests::total_of(aggregator)) == integers);
  }
}

TEST(a_pool_refuses_more_than_it_holds) {
  RandomizerPool pool(public_key());
  pool.precompute(5, 1, false);
  pool.wait();
  constexpr std::size_t kRoom = RandomizerPool::kMaxEntries - 5;
  for (const std::size_t count : {kRoom + 1, RandomizerPool::kMaxEntries + 1, ~std::size_t{0}}) {
    CHECK_THROWS((pool.precompute(count, 1, false), 0), ErrorCode::kParameter);
  }
  CHECK_THROWS((pool.precompute(1, 2000, false), 0), ErrorCode::kParameter);
  CHECK(pool.available() == 5);
  // Refusals took none of the room; then there is none.
  pool.precompute(kRoom, 1, false);
  CHECK_THROWS((pool.precompute(1, 1, false), 0), ErrorCode::kParameter);
}

TEST(a_pool_can_be_destroyed_while_it_works) {
  for (int i = 0; i < 20; ++i) {
    RandomizerPool pool(public_key());
    pool.precompute(1'000'000, 3, false);
    if (i % 2 == 0) {
      while (pool.available() == 0) std::this_thread::yield();
      CHECK(take(pool, *public_key(), 1).size() == 1);
    }
  }
}

TEST(several_threads_share_a_pool) {
  RandomizerPool pool(public_key());
  std::vector<std::vector<Pair>> taken(3);
  {
    std::vector<std::jthread> threads;
    for (auto& own : taken) {
      threads.emplace_back([&] {
        pool.precompute(40, 2, false);
        while (own.size() < 40) {
          for (Pair& pair : take(pool, *public_key(), 40 - own.size())) own.push_back(std::move(pair));
        }
      });
    }
  }
  std::set<Pair> different;
  for (const auto& own : taken) different.insert(own.begin(), own.end());
  CHECK(different.size() == 120 && pool.available() == 0);
}

TEST(a_child_process_finds_the_pool_empty) {
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  RandomizerPool idle(keys.public_key);
  idle.precompute(10, 1, false);
  idle.wait();
  // Forks while threads are working, at any moment of theirs.
  for (int i = 0; i < 20; ++i) {
    RandomizerPool busy(keys.public_key);
    busy.precompute(kForksWhileThreadsWork ? 1'000'000 : 10, 2, false);
    if (!kForksWhileThreadsWork) {
      busy.wait();
    } else if (i % 2 == 0) {
      while (busy.available() == 0) std::this_thread::yield();
    }
    const pid_t child = fork();
    if (child == 0) {
      bool right = true;
      for (RandomizerPool* const pool : {&idle, &busy}) {
        right = right && pool->available() == 0;
        right = right && take(*pool, *keys.public_key, 5).empty();
        pool->wait();
        if (!kChildrenMayStartThreads) continue;
        pool->precompute(3, 1, false);
        pool->wait();
        right = right && take(*pool, *keys.public_key, 5).size() == 3;
      }
      busy.~RandomizerPool();
      _exit(right ? 0 : 1);
    }
    CHECK(child > 0);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(idle.available() == 10);
  }
}

}  // namespace paillier_pool_tests
