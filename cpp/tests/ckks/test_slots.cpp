#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ckks/flooding.h"
#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/mask/mask_cases.h"
#include "tests/statistics.h"

namespace ckks_slots_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::encrypt;
using tests::fixed_point;
using tests::Frame;
using tests::from_fixed_point;
using tests::key_pair;
using tests::Values;

namespace {

const std::vector<ParameterRequest> kRequests = {
    {Packing::kSlots, 20, 24, 20, {}}, {Packing::kSlots, 1, 8, 0, {}}, {Packing::kSlots, 5, 30, 10, {}}};

OpenedSums open_unflooded(const KeyPair& keys, const Frame& total) {
  return Decryptor(keys.secret_key)
      .insecure_open_unflooded(CiphertextView::parse(total, FrameKind::kCkksTotal), 2);
}

struct Round {
  Frame total;
  Values expected;  // the sums of the quantised values
};

Round sum_of_clients(const KeyPair& keys, std::size_t clients, std::size_t count,
                     std::mt19937_64& generator) {
  InsecureTestRandom seeds(generator());
  const ParameterFacts& facts = tests::facts_of(keys);
  Round round{{}, Values(count, 0.0)};
  std::vector<Frame> batches;
  for (std::size_t client = 0; client < clients; ++client) {
    const Values values = tests::random_values(*keys.public_key->parameters(), count, generator);
    for (std::size_t i = 0; i < count; ++i) {
      round.expected[i] += from_fixed_point(facts, fixed_point(facts, values[i]));
    }
    batches.push_back(encrypt(keys, values, seeds));
  }
  round.total = tests::total_of(keys, batches);
  return round;
}

double largest_difference(const Values& left, const Values& right) {
  CHECK(left.size() == right.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) largest = std::max(largest, std::fabs(left[i] - right[i]));
  return largest;
}

// The deviation that flooding gives a slot's real part: N coefficients times cosines, whose squares sum to
// N/2.
double slot_deviation(const ParameterFacts& facts) {
  return std::ldexp(std::sqrt(facts.degree / 2.0), facts.log2_flooding - facts.log2_scale);
}

}  // namespace

TEST(slot_sums_are_right_to_half_a_unit) {
  std::mt19937_64 generator(121);
  for (const ParameterRequest& request : kRequests) {
    const KeyPair& keys = key_pair(request);
    const double unit = from_fixed_point(tests::facts_of(keys), 1);
    for (const std::size_t count : {1, 2047, 2048, 5000}) {
      const Round round = sum_of_clients(keys, request.max_clients, count, generator);
      CHECK(largest_difference(tests::open(keys, round.total).values, round.expected) <= unit / 2);
      // Without flooding the error is far smaller: this is what must not leave the authority.
      CHECK(largest_difference(open_unflooded(keys, round.total).values, round.expected) <= unit / 1024);
    }
  }
}

TEST(slot_sums_at_the_limits_do_not_wrap) {
  InsecureTestRandom seeds(125);
  for (const ParameterRequest& request : kRequests) {
    const KeyPair& keys = key_pair(request);
    const double limit = keys.public_key->parameters()->value_limit();
    const double unit = from_fixed_point(tests::facts_of(keys), 1);
    for (const double sign : {1.0, -1.0}) {
      // A constant puts everything into one coefficient.
      std::vector<Frame> batches;
      for (std::uint32_t i = 0; i < request.max_clients; ++i) {
        batches.push_back(encrypt(keys, Values(2048, sign * limit), seeds));
      }
      const Values expected(2048, sign * limit * request.max_clients);
      CHECK(largest_difference(tests::open(keys, tests::total_of(keys, batches)).values, expected) <=
            unit / 2);
    }
  }
}

TEST(slots_follow_masks_and_weights) {
  std::mt19937_64 generator(122);
  InsecureTestRandom seeds(125);
  const KeyPair& keys = key_pair(kRequests[0]);
  const ParameterFacts& facts = tests::facts_of(keys);
  const Values values = tests::random_values(*keys.public_key->parameters(), 6000, generator);
  for (const double density : {0.0, 0.4, 1.0}) {
    const auto mask = mask::Bitset::from_bools(tests::random_bools(values.size(), density, generator));
    EncryptOptions options;
    options.weight = 0.375;
    const auto opened =
        tests::open(keys, tests::total_of(keys, {encrypt(keys, values, seeds, options, &mask)}));
    Values expected;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (mask.test(i)) expected.push_back(from_fixed_point(facts, fixed_point(facts, values[i] * 0.375)));
    }
    CHECK(largest_difference(opened.values, expected) <= from_fixed_point(facts, 1) / 2);
    CHECK(std::fabs(opened.weight_sum.value() - 0.375) <= from_fixed_point(facts, 1) / 2);
  }
}

TEST(flooding_has_the_deviation_it_should) {
  std::mt19937_64 generator(123);
  const KeyPair& keys = key_pair(kRequests[0]);
  const ParameterFacts& facts = tests::facts_of(keys);
  const Round round = sum_of_clients(keys, 1, 20 * facts.values_per_block(), generator);
  const Values flooded = tests::open(keys, round.total).values;
  const Values unflooded = open_unflooded(keys, round.total).values;
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i < flooded.size(); ++i) {
    const double z = (flooded[i] - unflooded[i]) / slot_deviation(facts);
    sum += z;
    squares += z * z;
  }
  // The cosines of two slots are orthogonal, so these are independent standard normals.
  const auto n = static_cast<double>(flooded.size());
  CHECK(std::fabs(sum / std::sqrt(n)) < tests::normal_limit());
  CHECK(std::fabs((squares - n) / std::sqrt(2.0 * n)) < tests::normal_limit());
  // It hides the error of decryption, which is smaller by far more than a million.
  CHECK(largest_difference(unflooded, round.expected) < slot_deviation(facts) * 0x1p-10);
}

TEST(opening_a_total_again_gives_the_same_values) {
  std::mt19937_64 generator(124);
  const KeyPair& keys = key_pair(kRequests[0]);
  const Round round = sum_of_clients(keys, 2, 3000, generator);
  const Values once = tests::open(keys, round.total, 1).values;
  CHECK(tests::open(keys, round.total, 2).values == once);
  const auto restored = SecretKey::import_secret(*keys.public_key, keys.secret_key->export_secret());
  CHECK(tests::open({keys.public_key, restored}, round.total).values == once);
}

TEST(different_totals_and_blocks_get_different_flooding) {
  InsecureTestRandom seeds(125);
  const KeyPair& keys = key_pair(kRequests[0]);
  const std::size_t block = tests::facts_of(keys).values_per_block();
  // Equal values everywhere, so that only noise can differ.
  const auto noise_of = [&] {
    const Frame total = tests::total_of(keys, {encrypt(keys, Values(2 * block, 1.0), seeds)});
    Values noise = tests::open(keys, total).values;
    const Values unflooded = open_unflooded(keys, total).values;
    for (std::size_t i = 0; i < noise.size(); ++i) noise[i] -= unflooded[i];
    return noise;
  };
  const Values one = noise_of();
  const Values two = noise_of();
  const auto correlation = [&](const double* left, const double* right) {
    double sum = 0.0;
    for (std::size_t i = 0; i < block; ++i) sum += left[i] * right[i];
    const double deviation = slot_deviation(tests::facts_of(keys));
    return std::fabs(sum / (deviation * deviation * std::sqrt(static_cast<double>(block))));
  };
  CHECK(correlation(one.data(), two.data()) < tests::normal_limit());
  CHECK(correlation(one.data(), one.data() + block) < tests::normal_limit());
  CHECK(correlation(one.data(), one.data()) > tests::normal_limit());
}

TEST(another_number_of_clients_gets_different_flooding) {
  // The correction for dropped bits depends on it: the same noise over both would cancel out and leave the
  // key.
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(kRequests[0]);
  const Frame frame = tests::total_of(keys, {encrypt(keys, Values(10, 1.0), seeds)});
  CiphertextView total = CiphertextView::parse(frame, FrameKind::kCkksTotal);
  const Seed one = flooding_seed_for(*keys.secret_key, total);
  CHECK(flooding_seed_for(*keys.secret_key, total).bytes == one.bytes);
  total.frame_ids.push_back(random_id(seeds));
  CHECK(flooding_seed_for(*keys.secret_key, total).bytes != one.bytes);
}

}  // namespace ckks_slots_tests
