// Aggregators of aggregators: totals are added to totals, and many frames to one sum.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/ckks/ciphertext_digits.h"
#include "tests/ckks/ckks_cases.h"

namespace ckks_subtotals_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using ring::UInt128;
using tests::Frame;
using tests::key_pair;
using tests::total_of;
using tests::Values;

namespace {

const std::vector<ParameterRequest> kRequests = {
    {Packing::kExact, 7, 24, 20, {}}, {Packing::kExact, 7, 24, 20, 4096}, {Packing::kSlots, 7, 16, 10, {}}};

std::vector<Frame> batches_of(const KeyPair& keys, std::size_t count, std::size_t values,
                              std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  InsecureTestRandom seeds(seed);
  std::vector<Frame> batches;
  for (std::size_t i = 0; i < count; ++i) {
    batches.push_back(
        tests::encrypt(keys, tests::random_values(*keys.public_key->parameters(), values, generator), seeds));
  }
  return batches;
}

// The total of totals and batches.
Frame sum_of(const KeyPair& keys, const std::vector<Frame>& totals, const std::vector<Frame>& batches) {
  Aggregator aggregator(keys.public_key, {}, 2);
  for (const Frame& total : totals) aggregator.add_total(total);
  for (const Frame& batch : batches) aggregator.add(batch);
  return total_of(aggregator);
}

}  // namespace

TEST(totals_of_totals_are_the_flat_total) {
  for (const ParameterRequest& request : kRequests) {
    const KeyPair& keys = key_pair(request);
    const std::vector<Frame> b = batches_of(keys, 7, 9000, 151);
    const Frame flat = total_of(keys, b);
    const Frame one = total_of(keys, {b[0]});
    const Frame two = total_of(keys, {b[1], b[2]});
    const Frame three = total_of(keys, {b[3], b[4], b[5]});
    CHECK(sum_of(keys, {one, two, three}, {b[6]}) == flat);
    CHECK(sum_of(keys, {three, one}, {b[6], b[2], b[1]}) == flat);
    CHECK(sum_of(keys, {sum_of(keys, {two, one}, {}), sum_of(keys, {three}, {b[6]})}, {}) == flat);
    CHECK(sum_of(keys, {flat}, {}) == flat);
    // A parsed total is added like its bytes.
    Aggregator aggregator(keys.public_key, {}, 2);
    aggregator.add_total(CiphertextView::parse(three, FrameKind::kCkksTotal));
    CHECK(aggregator.clients() == 3 && aggregator.round() == 0U && total_of(aggregator) == three);
  }
}

TEST(totals_and_batches_are_not_taken_for_each_other) {
  const KeyPair& keys = key_pair(kRequests[0]);
  const std::vector<Frame> b = batches_of(keys, 2, 3000, 152);
  const Frame total = total_of(keys, {b[1]});
  Aggregator aggregator(keys.public_key, {}, 1);
  aggregator.add(b[0]);
  const Frame before = total_of(aggregator);
  CHECK_THROWS((aggregator.add(total), 0), ErrorCode::kWireFormat);
  CHECK_THROWS((aggregator.add_total(b[1]), 0), ErrorCode::kWireFormat);
  CHECK_THROWS((aggregator.add(CiphertextView::parse(total, FrameKind::kCkksTotal)), 0),
               ErrorCode::kWireFormat);
  CHECK_THROWS((aggregator.add_total(CiphertextView::parse(b[1], FrameKind::kCkksBatch)), 0),
               ErrorCode::kWireFormat);
  // Nor can a batch be declared a total: what it left out would be missing.
  CHECK_THROWS((aggregator.add_total(tests::with_field(b[1], 6, std::uint16_t{4})), 0),
               ErrorCode::kWireFormat);
  CHECK_THROWS((aggregator.add(tests::with_field(total, 6, std::uint16_t{3})), 0), ErrorCode::kWireFormat);
  CHECK(total_of(aggregator) == before);
}

TEST(a_client_counts_once_whatever_way_it_comes) {
  const KeyPair& keys = key_pair(kRequests[0]);
  const std::vector<Frame> b = batches_of(keys, 5, 3000, 153);
  Aggregator aggregator(keys.public_key, {}, 1);
  aggregator.add_total(total_of(keys, {b[0], b[1]}));
  aggregator.add(b[2]);
  const Frame before = total_of(aggregator);
  for (const std::size_t known : {0, 1, 2}) {
    CHECK_THROWS((aggregator.add(b[known]), 0), ErrorCode::kDuplicateFrame);
    CHECK_THROWS((aggregator.add_total(total_of(keys, {b[3], b[known], b[4]})), 0),
                 ErrorCode::kDuplicateFrame);
  }
  CHECK(total_of(aggregator) == before);
  aggregator.add_total(total_of(keys, {b[3], b[4]}));
  CHECK(total_of(aggregator) == total_of(keys, b));
}

TEST(all_clients_of_a_total_count_towards_the_limit) {
  const KeyPair& keys = key_pair(kRequests[0]);
  const std::vector<Frame> b = batches_of(keys, 8, 3000, 154);
  const Frame four = total_of(keys, {b[0], b[1], b[2], b[3]});
  Aggregator aggregator(keys.public_key, {}, 1);
  aggregator.add_total(four);
  aggregator.add(b[4]);
  CHECK_THROWS((aggregator.add_total(total_of(keys, {b[5], b[6], b[7]})), 0), ErrorCode::kCapacity);
  CHECK(aggregator.clients() == 5);
  aggregator.add_total(total_of(keys, {b[5], b[6]}));
  CHECK_THROWS((aggregator.add(b[7]), 0), ErrorCode::kCapacity);
  CHECK_THROWS((aggregator.add_total(total_of(keys, {b[7]})), 0), ErrorCode::kCapacity);
  CHECK(total_of(aggregator) == total_of(keys, {b.begin(), b.end() - 1}));
}

TEST(totals_that_do_not_belong_are_refused) {
  const KeyPair& keys = key_pair(kRequests[0]);
  SystemSeedSource seeds;
  Aggregator aggregator(keys.public_key, {.round = 0}, 1);
  aggregator.add_total(total_of(keys, batches_of(keys, 1, 3000, 155)));
  const Frame before = total_of(aggregator);
  const KeyPair foreign = generate_keys(keys.public_key->parameters(), seeds);
  CHECK_THROWS((aggregator.add_total(total_of(foreign, batches_of(foreign, 1, 3000, 156))), 0),
               ErrorCode::kKeyMismatch);
  const KeyPair& others = key_pair({Packing::kExact, 6, 24, 20, {}});
  CHECK_THROWS((aggregator.add_total(total_of(others, batches_of(others, 1, 3000, 157))), 0),
               ErrorCode::kParameter);
  CHECK_THROWS((aggregator.add_total(total_of(keys, batches_of(keys, 1, 2999, 158))), 0),
               ErrorCode::kParameter);
  EncryptOptions options;
  options.round = 1;
  const Frame later = tests::encrypt(keys, Values(3000, 1.0), seeds, options);
  CHECK_THROWS((aggregator.add_total(total_of(keys, {later})), 0), ErrorCode::kPolicy);
  CHECK(total_of(aggregator) == before);
}

TEST(several_threads_add_to_one_sum) {
  const KeyPair& keys = key_pair({Packing::kExact, 24, 16, 10, {}});
  const std::vector<Frame> batches = batches_of(keys, 24, 5000, 159);
  Aggregator aggregator(keys.public_key, {}, 2);
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = 6 * thread; i < 6 * thread + 4; ++i) aggregator.add(batches[i]);
        aggregator.add_total(total_of(keys, {batches[6 * thread + 4], batches[6 * thread + 5]}));
        (void)total_of(aggregator);
      });
    }
  }
  CHECK(total_of(aggregator) == total_of(keys, batches));
}

TEST(sums_are_reduced_before_they_overflow) {
  // Primes of 50 bits, the longest there are, of whose digits 2^13 fit 63 bits.
  constexpr std::uint32_t kAdditions = (std::uint32_t{1} << 14) + 100;
  for (const auto& [degree, value_bits] : {std::pair{2048U, 13U}, {4096U, 24U}}) {
    const KeyPair& keys = key_pair({Packing::kExact, 1U << 15, value_bits, 0, degree});
    const ParameterFacts& facts = tests::facts_of(keys);
    for (const std::uint64_t prime : facts.primes) CHECK(std::bit_width(prime) == 50);
    // Two ciphertexts, one with the largest digits that travel, which come again under many names.
    const std::vector<Frame> batches = batches_of(keys, 2, 1, 160);
    std::vector<std::uint64_t> digits(facts.block_words());
    for (std::size_t i = 0; i < digits.size(); ++i) {
      digits[i] = facts.primes[i / facts.degree % facts.primes.size()] - 1;
    }
    Frame largest = batches[1];
    const std::size_t bytes = facts.format(FrameKind::kCkksBatch).bytes();
    facts.format(FrameKind::kCkksBatch)
        .pack(digits, std::span(largest).subspan(tests::FrameOffsets(facts).payload(1), bytes));
    tests::reseal(largest);
    CiphertextView views[] = {CiphertextView::parse(batches[0], FrameKind::kCkksBatch),
                              CiphertextView::parse(largest, FrameKind::kCkksBatch)};
    Aggregator aggregator(keys.public_key, {}, 1);
    for (std::uint32_t i = 0; i < kAdditions; ++i) {
      CiphertextView& view = views[i % 16 == 0 ? 0 : 1];
      std::memcpy(view.frame_ids[0].data(), &i, sizeof i);
      aggregator.add(view);
    }
    const Frame frame = total_of(aggregator);
    const CiphertextView total = CiphertextView::parse(frame, FrameKind::kCkksTotal);
    CHECK(total.frame_ids.size() == kAdditions);
    const auto sums = tests::numbers_of(facts, tests::digits_of(total));
    const auto sometimes = tests::numbers_of(facts, tests::digits_of(views[0]));
    const auto mostly = tests::numbers_of(facts, tests::digits_of(views[1]));
    constexpr std::uint32_t kSometimes = (kAdditions + 15) / 16;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const UInt128 expected = sometimes[i] * kSometimes + mostly[i] * (kAdditions - kSometimes);
      CHECK(sums[i] == expected % tests::modulus_of(facts));
    }
  }
}

}  // namespace ckks_subtotals_tests
