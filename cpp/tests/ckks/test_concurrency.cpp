// What several threads may do with the same object at the same time. ThreadSanitizer runs these too.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"

namespace ckks_concurrency_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::facts_of;
using tests::Frame;
using tests::key_pair;
using tests::total_of;
using tests::Values;

namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kBatchesPerThread = 6;
constexpr std::size_t kClients = kThreads * kBatchesPerThread;

const KeyPair& keys_for_all() {
  return key_pair({Packing::kExact, kClients, 16, 10, {}});
}

// Two ciphertexts.
Values update_of(std::size_t client) {
  Values values(facts_of(keys_for_all()).values_per_block() + 100);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>((i + client) % 13) / 8 - 0.75;
  return values;
}

Values sum_of_updates() {
  Values sum(update_of(0).size());
  for (std::size_t client = 0; client < kClients; ++client) {
    const Values update = update_of(client);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += update[i];
  }
  return sum;
}

std::vector<Frame> all_batches() {
  InsecureTestRandom seeds(170);
  std::vector<Frame> batches;
  for (std::size_t client = 0; client < kClients; ++client) {
    batches.push_back(tests::encrypt(keys_for_all(), update_of(client), seeds));
  }
  return batches;
}

// Calls body(number) from kThreads threads at once. An exception in one fails the test.
void from_many_threads(const std::function<void(std::size_t)>& body) {
  std::atomic<bool> threw = false;
  {
    std::vector<std::jthread> threads;
    for (std::size_t number = 0; number < kThreads; ++number) {
      threads.emplace_back([&, number] {
        try {
          body(number);
        } catch (const std::exception&) {
          threw = true;
        }
      });
    }
  }
  CHECK(!threw);
}

}  // namespace

TEST(a_sum_is_read_while_others_add_to_it) {
  const std::vector<Frame> batches = all_batches();
  Aggregator aggregator(keys_for_all().public_key, {}, 2);
  aggregator.add(batches[0]);
  std::atomic<bool> done = false;
  std::atomic<bool> in_order = true;
  std::atomic<std::size_t> totals = 0;
  std::jthread reader([&] {
    do {
      const std::size_t before = aggregator.clients();
      const Frame total = total_of(aggregator);
      const std::size_t after = aggregator.clients();
      const std::size_t clients = CiphertextView::parse(total, FrameKind::kCkksTotal, 1).frame_ids.size();
      if (before > clients || clients > after || aggregator.round() != 0U) in_order = false;
      ++totals;
    } while (!done);
  });
  from_many_threads([&](std::size_t thread) {
    for (std::size_t i = thread; i < kClients; i += kThreads) {
      if (i != 0) aggregator.add(batches[i]);
    }
  });
  done = true;
  reader.join();
  CHECK(in_order && totals > 0);
  CHECK(aggregator.clients() == kClients);
  CHECK(tests::open(keys_for_all(), total_of(aggregator)).values == sum_of_updates());
}

TEST(a_batch_that_several_threads_bring_counts_once) {
  const std::vector<Frame> batches = all_batches();
  Aggregator aggregator(keys_for_all().public_key, {}, 1);
  std::atomic<std::size_t> refused = 0;
  from_many_threads([&](std::size_t) {
    for (const Frame& batch : batches) {
      try {
        aggregator.add(batch);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kDuplicateFrame) ++refused;
      }
    }
  });
  CHECK(refused == (kThreads - 1) * kClients);
  CHECK(tests::open(keys_for_all(), total_of(aggregator)).values == sum_of_updates());
}

TEST(encryptors_share_a_public_key) {
  const Encryptor shared(keys_for_all().public_key);
  Aggregator aggregator(keys_for_all().public_key, {}, 1);
  from_many_threads([&](std::size_t thread) {
    const Encryptor own(keys_for_all().public_key);
    SystemSeedSource seeds;
    EncryptOptions options;
    options.threads = 2;
    for (std::size_t client = thread; client < kClients; client += kThreads) {
      const Values update = update_of(client);
      Frame frame(shared.frame_bytes(update.size(), nullptr, false));
      const Encryptor& encryptor = client % 2 == 0 ? shared : own;
      (void)encryptor.encrypt(scheme::ValuePieces<double>(update), nullptr, options, seeds, frame);
      aggregator.add(frame);
    }
  });
  CHECK(tests::open(keys_for_all(), total_of(aggregator)).values == sum_of_updates());
}

TEST(totals_are_opened_at_the_same_time) {
  const Frame total = total_of(keys_for_all(), all_batches());
  const Decryptor decryptor(keys_for_all().secret_key);
  const auto view = CiphertextView::parse(total, FrameKind::kCkksTotal, 1);
  const Values expected = sum_of_updates();
  std::atomic<std::size_t> right = 0;
  from_many_threads([&](std::size_t thread) {
    if (decryptor.open(view, 1 + thread % 2).values == expected) ++right;
  });
  CHECK(right == kThreads);
}

TEST(slots_are_opened_at_the_same_time) {
  const KeyPair& keys = key_pair({Packing::kSlots, 3, 16, 10, {}});
  InsecureTestRandom seeds(171);
  const Frame total = total_of(keys, {tests::encrypt(keys, Values(3000, 0.5), seeds)});
  const Values expected = tests::open(keys, total).values;
  std::atomic<std::size_t> right = 0;
  from_many_threads([&](std::size_t) {
    if (tests::open(keys, total).values == expected) ++right;
  });
  CHECK(right == kThreads);
}

TEST(encryptors_share_a_mask_and_take_its_id_at_the_same_time) {
  const KeyPair& keys = keys_for_all();
  std::vector<std::uint8_t> chosen(5000);
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = i % 3 == 0 ? 1 : 0;
  const mask::Bitset mask = mask::Bitset::from_bools(chosen);
  const Id expected = mask::Bitset::from_bools(chosen).content_id();
  std::atomic<std::size_t> right = 0;
  from_many_threads([&](std::size_t thread) {
    InsecureTestRandom seeds(172 + thread);
    const Frame frame = tests::encrypt(keys, Values(chosen.size(), 0.25), seeds, {}, &mask);
    if (CiphertextView::parse(frame, FrameKind::kCkksBatch, 1).layout.mask_id == expected) ++right;
  });
  CHECK(right == kThreads);
}

}  // namespace ckks_concurrency_tests
