#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ckks/block_encryption.h"
#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/mask/mask_cases.h"

namespace ckks_exact_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::encrypt;
using tests::fixed_point;
using tests::Frame;
using tests::from_fixed_point;
using tests::key_pair;
using tests::Values;

namespace {

// Different rings, numbers of values per coefficient (also several) and guard bits (also none).
const std::vector<ParameterRequest> kRequests = {
    {Packing::kExact, 5, 24, 20, {}}, {Packing::kExact, 3, 8, 4, 4096}, {Packing::kExact, 1, 2, 0, {}},
    {Packing::kExact, 7, 2, 0, 2048}, {Packing::kExact, 4, 2, 0, 4096}, {Packing::kExact, 3, 40, 30, {}},
    {Packing::kExact, 2, 10, 52, {}}};

enum class Kind { kRandom, kLargest, kSmallest, kMixedExtremes };

Values values_of(Kind kind, const Parameters& parameters, std::size_t count, std::mt19937_64& generator) {
  Values values = tests::random_values(parameters, count, generator);
  for (double& value : values) {
    if (kind == Kind::kLargest || (kind == Kind::kMixedExtremes && generator() % 2 == 0)) {
      value = parameters.value_limit();
    } else if (kind != Kind::kRandom) {
      value = -parameters.value_limit();
    }
  }
  return values;
}

mask::Bitset some_mask(const char* which, std::size_t size, std::mt19937_64& generator) {
  if (which == std::string("empty")) return mask::Bitset(size);
  if (which == std::string("full")) return mask::Bitset::full(size);
  return mask::Bitset::from_bools(tests::random_bools(size, 0.3, generator));
}

// Encrypts, sums and opens the updates of some clients and compares with the sum of integers, bit for bit.
void check_sums(const KeyPair& keys, const std::vector<Values>& updates, const mask::Bitset* mask,
                const std::vector<double>& weights, SeedSource& seeds) {
  const ParameterFacts& facts = tests::facts_of(keys);
  std::vector<Frame> batches;
  std::vector<std::int64_t> expected(updates[0].size(), 0);
  std::int64_t expected_weight = 0;
  for (std::size_t client = 0; client < updates.size(); ++client) {
    EncryptOptions options;
    double weight = 1.0;
    if (!weights.empty()) {
      options.weight = weights[client];
      expected_weight += fixed_point(facts, weights[client]);
      weight = from_fixed_point(facts, fixed_point(facts, weights[client]));
    }
    batches.push_back(encrypt(keys, updates[client], seeds, options, mask));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += fixed_point(facts, updates[client][i] * weight);
    }
  }
  const Frame total = tests::total_of(keys, batches);
  const OpenedSums opened = tests::open(keys, total);
  std::size_t rank = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (mask != nullptr && !mask->test(i)) continue;
    CHECK(opened.values[rank] == from_fixed_point(facts, expected[i]));
    ++rank;
  }
  CHECK(rank == opened.values.size());
  CHECK(opened.weight_sum.has_value() == !weights.empty());
  if (!weights.empty()) CHECK(*opened.weight_sum == from_fixed_point(facts, expected_weight));
}

}  // namespace

TEST(exact_sums_are_the_integer_sums_for_every_number_of_clients) {
  std::mt19937_64 generator(91);
  SystemSeedSource seeds;
  for (const ParameterRequest& request : kRequests) {
    const KeyPair& keys = key_pair(request);
    const Parameters& parameters = *keys.public_key->parameters();
    const std::size_t block = parameters.facts().values_per_block();
    for (std::uint32_t clients = 1; clients <= request.max_clients; ++clients) {
      for (const Kind kind : {Kind::kRandom, Kind::kLargest, Kind::kSmallest, Kind::kMixedExtremes}) {
        // Whole blocks, blocks that are not full, and coefficients whose fields are not all in use.
        const std::size_t counts[] = {1, block, block + 1, std::max<std::size_t>(2, block - block / 3)};
        std::vector<Values> updates;
        const std::size_t count = counts[generator() % 4];
        for (std::uint32_t i = 0; i < clients; ++i)
          updates.push_back(values_of(kind, parameters, count, generator));
        check_sums(keys, updates, nullptr, {}, seeds);
      }
    }
  }
}

TEST(exact_sums_of_the_most_clients_do_not_overflow) {
  std::mt19937_64 generator(92);
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair({Packing::kExact, 64, 24, 20, {}});
  for (const Kind kind : {Kind::kLargest, Kind::kSmallest, Kind::kRandom}) {
    const std::vector<Values> updates(64, values_of(kind, *keys.public_key->parameters(), 2049, generator));
    check_sums(keys, updates, nullptr, {}, seeds);
  }
}

TEST(exact_sums_follow_masks_and_weights) {
  std::mt19937_64 generator(93);
  SystemSeedSource seeds;
  for (const ParameterRequest& request : {kRequests[0], kRequests[1], kRequests[4]}) {
    const KeyPair& keys = key_pair(request);
    const Parameters& parameters = *keys.public_key->parameters();
    const std::size_t block = parameters.facts().values_per_block();
    const double unit = from_fixed_point(parameters.facts(), 1);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{1000}, block - 1, block, 2 * block}) {
      for (const char* which : {"none", "empty", "full", "random"}) {
        const mask::Bitset mask = some_mask(which, size, generator);
        const mask::Bitset* chosen = which == std::string("none") ? nullptr : &mask;
        std::vector<Values> updates;
        for (int i = 0; i < 3; ++i) updates.push_back(tests::random_values(parameters, size, generator));
        check_sums(keys, updates, chosen, {}, seeds);
        if (parameters.value_limit() >= 1.0)
          check_sums(keys, updates, chosen, {1.0, unit, 1.0 - unit / 3}, seeds);
      }
    }
  }
}

TEST(weights_at_their_limits_scale_the_update) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair({Packing::kExact, 5, 24, 20, {}});
  const Parameters& parameters = *keys.public_key->parameters();
  const double limit = parameters.value_limit();
  check_sums(keys, {{1.0, -1.0, 0.5}, {0.25, 1.0, -1.0}}, nullptr, {limit, limit}, seeds);
  const double unit = from_fixed_point(parameters.facts(), 1);
  check_sums(keys, {{limit, -limit, 1.0}}, nullptr, {unit}, seeds);
  for (const double weight : {0.0, -1.0, unit / 4, limit + unit, std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()}) {
    EncryptOptions options;
    options.weight = weight;
    CHECK_THROWS(encrypt(keys, {0.0}, seeds, options), ErrorCode::kParameter);
  }
  EncryptOptions options;
  options.weight = 2.0;
  CHECK_THROWS(encrypt(keys, {0.0, limit * 0.75}, seeds, options), ErrorCode::kRange);  // the product counts
}

TEST(quantisation_rounds_ties_to_even) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair({Packing::kExact, 5, 24, 20, {}});
  const double unit = 0x1p-20;
  const Values values = {0.5 * unit,  1.5 * unit,  2.5 * unit, -0.5 * unit,
                         -1.5 * unit, -2.5 * unit, 0.51 * unit};
  const Values expected = {0.0, 2 * unit, 2 * unit, 0.0, -2 * unit, -2 * unit, unit};
  CHECK(tests::open(keys, tests::total_of(keys, {encrypt(keys, values, seeds)})).values == expected);
}

TEST(values_out_of_range_are_refused_or_clipped) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair({Packing::kExact, 5, 24, 20, {}});
  const double limit = keys.public_key->parameters()->value_limit();
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {limit + 0x1p-20, -limit - 0x1p-20, 1e308, -1e308, infinity, -infinity, nan}) {
    Values values(5000, 0.0);
    values[4321] = bad;
    values[4999] = bad;
    std::string message;
    try {
      (void)encrypt(keys, values, seeds);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kRange);
      message = error.what();
    }
    CHECK(message.find("position 4321 ") != std::string::npos);

    EncryptOptions clip;
    clip.clip = true;
    if (!std::isfinite(bad)) {
      CHECK_THROWS(encrypt(keys, values, seeds, clip), ErrorCode::kRange);
    } else {
      const tests::EncryptedBatch batch = tests::encrypt_batch(keys, values, seeds, clip);
      CHECK(batch.counts.clipped == 2);
      const auto opened = tests::open(keys, tests::total_of(keys, {batch.frame}));
      CHECK(opened.values[4321] == std::copysign(limit, bad) && opened.values[4320] == 0.0);
    }
    // What the mask leaves out is not looked at; positions are those of the update, not ranks.
    mask::Bitset mask = ~mask::Bitset::from_indices(std::vector<std::int64_t>{4321, 0, 5}, values.size());
    values[4999] = 0.0;
    (void)encrypt(keys, values, seeds, {}, &mask);
    values[4998] = bad;
    try {
      message.clear();
      (void)encrypt(keys, values, seeds, {}, &mask);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK(message.find("position 4998 ") != std::string::npos);
  }
  mask::Bitset mask(7);
  CHECK_THROWS(encrypt(keys, Values(8), seeds, {}, &mask), ErrorCode::kParameter);
}

TEST(values_that_round_to_zero_are_counted) {
  SystemSeedSource seeds;
  Values values(9000, 0.0);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = i % 2 == 0 ? 0x1p-22 : -0x1p-20;
  for (const Packing packing : {Packing::kExact, Packing::kSlots}) {
    const KeyPair& keys = key_pair({packing, 5, 24, 20, {}});
    for (const std::size_t threads : {1U, 2U, 5U}) {
      EncryptOptions options;
      options.threads = threads;
      CHECK(
          (tests::encrypt_batch(keys, values, seeds, options).counts == scheme::ValueCounts{3000, 1500, 0}));
      options.weight = 0.25;
      CHECK(
          (tests::encrypt_batch(keys, values, seeds, options).counts == scheme::ValueCounts{3000, 3000, 0}));
      // What the mask leaves out does not count, nor what is out of range.
      options.weight.reset();
      options.clip = true;
      Values some = values;
      some[1] = 1e30;
      const mask::Bitset mask = mask::Bitset::from_indices(std::vector<std::int64_t>{0, 1, 2, 3, 6}, 9000);
      CHECK((tests::encrypt_batch(keys, some, seeds, options, &mask).counts == scheme::ValueCounts{4, 2, 1}));
    }
  }
}

TEST(a_weight_keeps_its_precision_where_values_are_scaled_for_small_updates) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair({Packing::kExact, 5, 24, 40, {}});
  CHECK(tests::facts_of(keys).fixed_point().weight_step() == 0x1p-22);
  std::vector<Frame> batches;
  for (const double weight : {1.0, 0.5, 0x1p-22}) {
    EncryptOptions options;
    options.weight = weight;
    batches.push_back(encrypt(keys, {0x1p-20, -0x1p-30}, seeds, options));
  }
  const auto opened = tests::open(keys, tests::total_of(keys, batches));
  CHECK(opened.weight_sum == 1.5 + 0x1p-22);
  CHECK((opened.values == Values{1.5 * 0x1p-20, -1.5 * 0x1p-30}));  // 2^-42 rounds to zero, 2^-52 too
  EncryptOptions options;
  options.weight = 2.0;
  CHECK_THROWS(encrypt(keys, {0.0}, seeds, options), ErrorCode::kParameter);
}

TEST(floats_encrypt_like_the_doubles_they_are) {
  std::mt19937_64 generator(94);
  const KeyPair& keys = key_pair({Packing::kExact, 5, 24, 20, {}});
  std::uniform_real_distribution<float> distribution(-3.0F, 3.0F);
  std::vector<float> floats(3000);
  for (float& value : floats) value = distribution(generator);
  InsecureTestRandom seeds(1);
  InsecureTestRandom same_seeds(1);
  const Values doubles(floats.begin(), floats.end());
  CHECK(tests::encrypt_batch(keys, floats, seeds).frame == encrypt(keys, doubles, same_seeds));
}

TEST(frames_do_not_depend_on_threads) {
  std::mt19937_64 generator(95);
  for (const ParameterRequest& request :
       {kRequests[0], kRequests[1], ParameterRequest{Packing::kSlots, 3, 16, 10, {}}}) {
    const KeyPair& keys = key_pair(request);
    const Values values = tests::random_values(*keys.public_key->parameters(), 30'000, generator);
    const mask::Bitset mask = some_mask("random", values.size(), generator);
    std::vector<Frame> frames;
    std::vector<Frame> totals;
    std::vector<Values> opened;
    for (const std::size_t threads : {1, 2, 5}) {
      InsecureTestRandom seeds(7);
      EncryptOptions options;
      options.threads = threads;
      frames.push_back(encrypt(keys, values, seeds, options, &mask));
      Aggregator aggregator(keys.public_key, {.round = 0}, threads);
      aggregator.add(frames.back());
      aggregator.add(encrypt(keys, values, seeds, options, &mask));
      totals.push_back(tests::total_of(aggregator));
      opened.push_back(tests::open(keys, totals.back(), threads).values);
    }
    CHECK(frames[0] == frames[1] && frames[0] == frames[2]);
    CHECK(totals[0] == totals[1] && totals[0] == totals[2]);
    CHECK(opened[0] == opened[1] && opened[0] == opened[2]);
    EncryptOptions absurd;
    absurd.threads = 100'000;
    SystemSeedSource seeds;
    CHECK_THROWS(encrypt(keys, values, seeds, absurd), ErrorCode::kParameter);
  }
}

TEST(two_encryptions_of_one_update_share_nothing) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair({Packing::kExact, 5, 24, 20, {}});
  const Frame one = encrypt(keys, Values(100, 1.0), seeds);
  const Frame two = encrypt(keys, Values(100, 1.0), seeds);
  const tests::FrameOffsets at(tests::facts_of(keys));
  std::size_t equal = 0;
  for (std::size_t i = at.frame_ids; i < one.size(); ++i) equal += one[i] == two[i] ? 1 : 0;
  // One byte in 256 is equal by chance; twice as many would be far beyond any deviation.
  CHECK(equal < (one.size() - at.frame_ids) / 128);

  // Nor do the ciphertexts of one batch: c1 is public1 u + e1, so one u twice would show.
  const ParameterFacts& facts = tests::facts_of(keys);
  const Frame batch = encrypt(keys, Values(2 * facts.values_per_block(), 1.0), seeds);
  const CiphertextView view = CiphertextView::parse(batch, FrameKind::kCkksBatch);
  const std::vector<std::uint64_t> first = tests::residues_of(view, 0);
  const std::vector<std::uint64_t> second = tests::residues_of(view, 1);
  std::size_t same = 0;
  for (std::size_t i = 0; i < first.size(); ++i) same += first[i] == second[i] ? 1 : 0;
  // 30 bits and more of each residue travel: among 2^12 pairs any is equal with probability 2^-18.
  CHECK(same < 4);
}

}  // namespace ckks_exact_tests
