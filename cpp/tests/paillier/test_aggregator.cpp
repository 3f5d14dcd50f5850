#include <algorithm>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "paillier/aggregator.h"
#include "tests/check.h"
#include "tests/paillier/paillier_batches.h"

namespace paillier_aggregator_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::Frame;
using tests::Integers;
using tests::key_pair;
using tests::PaillierOffsets;
using tests::Values;
using tests::with_field;

namespace {

constexpr std::size_t kCount = 150;
constexpr std::uint64_t kRound = 3;

Frame batch_of(const KeyPair& keys, double value, std::uint64_t round = kRound, std::size_t count = kCount) {
  SystemSeedSource seeds;
  EncryptOptions options;
  options.round = round;
  return tests::encrypt(*keys.public_key, Values(count, value), seeds, options);
}

Frame total_of(const KeyPair& keys, const std::vector<Frame>& batches, std::size_t threads = 2) {
  Aggregator aggregator(keys.public_key, std::nullopt, threads);
  for (const Frame& batch : batches) aggregator.add(batch);
  return tests::total_of(aggregator);
}

// An aggregator that holds nothing, or one batch, refuses the frame with the code, changes nothing, and goes
// on.
void check_refused(const KeyPair& keys, const Frame& refused, ErrorCode code, std::uint32_t weight = 1) {
  Aggregator aggregator(keys.public_key, kRound, 2);
  CHECK_THROWS(tests::total_of(aggregator), ErrorCode::kParameter);
  aggregator.add(batch_of(keys, 1.5));
  const Frame before = tests::total_of(aggregator);
  CHECK_THROWS((aggregator.add(refused, weight), 0), code);
  CHECK(tests::total_of(aggregator) == before);
  CHECK(aggregator.clients() == 1 && aggregator.round() == kRound);
  aggregator.add(batch_of(keys, -0.25));
  CHECK(tests::open(keys, tests::total_of(aggregator)).values == Values(kCount, 1.25));
}

}  // namespace

TEST(totals_are_the_sums_of_the_integers) {
  std::mt19937_64 generator(431);
  SystemSeedSource seeds;
  for (const Parameters& parameters : {tests::kDenseParameters, tests::kSingleParameters}) {
    const KeyPair& keys = key_pair(parameters);
    for (const std::size_t size : {0U, 1U, 67U, 250U}) {
      Integers expected(size, 0);
      std::vector<Frame> batches;
      for (std::uint32_t client = 0; client < parameters.facts().max_clients; ++client) {
        const Integers integers = tests::random_integers(parameters, size, generator);
        tests::add_times(expected, 1, integers);
        batches.push_back(tests::encrypt(*keys.public_key, tests::to_values(parameters, integers), seeds));
      }
      const Frame total = total_of(keys, batches);
      CHECK(tests::open_integers(keys, total) == expected);
      for (const std::size_t threads : {1U, 3U}) {
        std::shuffle(batches.begin(), batches.end(), generator);
        CHECK(total_of(keys, batches, threads) == total);
      }
    }
  }
}

TEST(integer_weights_multiply_batches_up_to_full_guard_bits) {
  std::mt19937_64 generator(432);
  SystemSeedSource seeds;
  for (const Parameters& parameters : {tests::kDenseParameters, tests::kSingleParameters}) {
    const KeyPair& keys = key_pair(parameters);
    Aggregator aggregator(keys.public_key, std::nullopt, 2);
    Integers expected;
    std::uint64_t total_weight = 0;
    for (const std::uint32_t weight : {10U, 1U, 7U, 10U}) {
      const Integers integers = tests::random_integers(parameters, 150, generator);
      aggregator.add(tests::encrypt(*keys.public_key, tests::to_values(parameters, integers), seeds), weight);
      tests::add_times(expected, weight, integers);
      total_weight += weight;
    }
    const Frame total = tests::total_of(aggregator);
    CHECK(tests::total_view(total).total_weight == total_weight);
    CHECK(tests::open_integers(keys, total) == expected);
  }
  // The ends of the range from all clients, with the largest weight.
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  const std::int64_t limit = tests::kDenseParameters.max_magnitude();
  Integers extremes(134);
  for (std::size_t i = 0; i < extremes.size(); ++i) extremes[i] = i % 3 == 0 ? limit : -limit;
  Aggregator aggregator(keys.public_key, std::nullopt, 1);
  Integers expected;
  for (int client = 0; client < 4; ++client) {
    aggregator.add(
        tests::encrypt(*keys.public_key, tests::to_values(tests::kDenseParameters, extremes), seeds), 10);
    tests::add_times(expected, 10, extremes);
  }
  CHECK(tests::open_integers(keys, tests::total_of(aggregator)) == expected);
}

TEST(totals_of_totals_are_totals) {
  std::mt19937_64 generator(433);
  SystemSeedSource seeds;
  const Parameters& parameters = tests::kDenseParameters;
  const KeyPair& keys = key_pair(parameters);
  Aggregator whole(keys.public_key, kRound, 1);
  Aggregator top(keys.public_key, kRound, 2);
  std::vector<Frame> subtotals;
  for (const std::uint32_t size : {1U, 2U}) {
    Aggregator part(keys.public_key, kRound, 1);
    for (std::uint32_t client = 0; client < size; ++client) {
      EncryptOptions options;
      options.round = kRound;
      const auto values = tests::to_values(parameters, tests::random_integers(parameters, kCount, generator));
      const Frame batch = tests::encrypt(*keys.public_key, values, seeds, options);
      part.add(batch, 2 + client);
      whole.add(batch, 2 + client);
    }
    subtotals.push_back(tests::total_of(part));
    top.add_total(subtotals.back());
  }
  const Frame last = batch_of(keys, -1.0);
  whole.add(last);
  top.add(last);
  const Frame total = tests::total_of(top);
  CHECK(total == tests::total_of(whole));
  CHECK(tests::total_view(total).total_weight == 8 && top.clients() == 4);
  CHECK_THROWS((top.add_total(subtotals.front()), 0), ErrorCode::kDuplicateFrame);
  CHECK_THROWS((top.add_total(last), 0), ErrorCode::kWireFormat);
  CHECK_THROWS((top.add(tests::total_view(subtotals.front())), 0), ErrorCode::kWireFormat);
  CHECK(tests::total_of(top) == total);
}

TEST(a_paillier_aggregator_refuses_what_does_not_belong) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  const Parameters other =
      tests::altered(tests::kDenseParameters, [](auto& facts) { facts.max_clients = 5; });
  check_refused(keys, batch_of(key_pair(other), 1.0), ErrorCode::kParameter);
  // Other primes, or another h under the same n.
  const auto factors =
      tests::factor_words(tests::known_safe_prime(1024, 2), tests::known_safe_prime(1024, 3), 2048);
  for (const auto& own : {factors, tests::insecure_factors(2048)}) {
    const KeyPair foreign = key_pair_of(tests::kDenseParameters, own, seeds, engine_for(instruction_set()));
    check_refused(keys, batch_of(foreign, 1.0), ErrorCode::kKeyMismatch);
  }
  check_refused(keys, batch_of(keys, 1.0, kRound + 1), ErrorCode::kPolicy);
  check_refused(keys, batch_of(keys, 1.0, kRound, kCount - 1), ErrorCode::kParameter);
  EncryptOptions options;
  options.round = kRound;
  options.weight = 1.0;
  const Frame weighted = tests::encrypt(*keys.public_key, Values(kCount, 1.0), seeds, options);
  check_refused(keys, weighted, ErrorCode::kParameter);
  check_refused(keys, weighted, ErrorCode::kParameter, 2);
  options.weight.reset();
  // As many values, but from other positions.
  const mask::Bitset mask = ~mask::Bitset::from_indices(std::vector<std::int64_t>{17}, kCount + 1);
  check_refused(keys, tests::encrypt(*keys.public_key, Values(kCount + 1, 1.0), seeds, options, &mask),
                ErrorCode::kParameter);
  for (const std::uint32_t weight : {0U, 11U, ~0U}) {
    check_refused(keys, batch_of(keys, 1.0), ErrorCode::kParameter, weight);
  }
  check_refused(keys, total_of(keys, {batch_of(keys, 1.0)}), ErrorCode::kWireFormat);
  check_refused(keys, keys.public_key->to_frame(), ErrorCode::kWireFormat);
  check_refused(keys, {}, ErrorCode::kWireFormat);
}

TEST(a_batch_with_an_encrypted_weight_takes_no_other_one) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  EncryptOptions options;
  options.weight = 0.5;
  const Frame weighted = tests::encrypt(*keys.public_key, Values(kCount, 1.0), seeds, options);
  Aggregator aggregator(keys.public_key, std::nullopt, 1);
  CHECK_THROWS((aggregator.add(weighted, 2), 0), ErrorCode::kParameter);
  const Values clear(kCount, 0.0);
  CHECK_THROWS((aggregator.add_mixed<double>(tests::batch_view(weighted), clear, 1), 0),
               ErrorCode::kParameter);
  CHECK(aggregator.clients() == 0);
  aggregator.add(weighted);
  CHECK(tests::total_view(tests::total_of(aggregator)).total_weight == 1);
}

TEST(residues_that_are_none_leave_the_sum_as_it_was) {
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  const BigInteger n = tests::modulus_of(*keys.public_key);
  const Frame batch = batch_of(keys, 1.0);
  const CiphertextView view = tests::batch_view(batch);
  for (const BigInteger& none : {BigInteger(0), n, n * BigInteger(7), n * n, n * n + BigInteger(1)}) {
    for (const std::size_t place : {std::size_t{0}, view.present_count() - 1}) {
      const Frame altered = tests::with_residue(batch, view, place, none);
      check_refused(keys, altered, ErrorCode::kWireFormat);
      check_refused(keys, altered, ErrorCode::kWireFormat, 3);
      // As the first batch too.
      Aggregator empty(keys.public_key, std::nullopt, 1);
      CHECK_THROWS((empty.add(altered), 0), ErrorCode::kWireFormat);
      CHECK(empty.clients() == 0 && !empty.round());
      CHECK_THROWS(tests::total_of(empty), ErrorCode::kParameter);
      // And in a total.
      const Frame total = total_of(keys, {batch});
      const Frame altered_total = tests::with_residue(total, tests::total_view(total), place, none);
      CHECK_THROWS((empty.add_total(altered_total), 0), ErrorCode::kWireFormat);
    }
  }
}

TEST(a_damaged_head_is_damage_first_of_all) {
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  const Frame batch = batch_of(keys, 1.0);
  for (const std::size_t offset : {std::size_t{16}, std::size_t{32}, PaillierOffsets::kRound,
                                   PaillierOffsets::kMaskId, PaillierOffsets::payload(1) + 100}) {
    Frame altered = batch;
    altered[offset] ^= 1;
    check_refused(keys, altered, ErrorCode::kWireFormat);
  }
  check_refused(keys, with_field(batch, PaillierOffsets::kRound, std::uint64_t{1} << 63), ErrorCode::kPolicy);
  check_refused(keys, with_field(batch, 32, static_cast<std::uint8_t>(batch[32] ^ 1)),
                ErrorCode::kKeyMismatch);
}

TEST(a_paillier_aggregator_counts_a_batch_once_and_clients_to_the_limit) {
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  Aggregator aggregator(keys.public_key, std::nullopt, 1);
  const Frame first = batch_of(keys, 1.0);
  aggregator.add(first);
  CHECK(aggregator.round() == kRound);  // the first batch decided
  CHECK_THROWS((aggregator.add(first), 0), ErrorCode::kDuplicateFrame);
  CHECK_THROWS((aggregator.add(batch_of(keys, 1.0, kRound - 1)), 0), ErrorCode::kPolicy);
  for (int i = 1; i < 4; ++i) aggregator.add(batch_of(keys, 1.0));
  const Frame full = tests::total_of(aggregator);
  CHECK_THROWS((aggregator.add(batch_of(keys, 1.0)), 0), ErrorCode::kCapacity);
  CHECK_THROWS((aggregator.add(first), 0), ErrorCode::kDuplicateFrame);
  CHECK(tests::total_of(aggregator) == full && aggregator.clients() == 4);
  CHECK(tests::open(keys, full).values == Values(kCount, 4.0));
}

TEST(threads_that_add_at_once_take_turns) {
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  std::vector<Frame> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(batch_of(keys, i));
  Aggregator aggregator(keys.public_key, std::nullopt, 2);
  {
    std::vector<std::jthread> threads;
    for (const Frame& batch : batches) {
      threads.emplace_back([&aggregator, &batch] {
        aggregator.add(batch);
        (void)tests::total_of(aggregator);
      });
    }
  }
  CHECK(tests::total_of(aggregator) == total_of(keys, batches));
}

}  // namespace paillier_aggregator_tests
