#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/check.h"
#include "tests/mask/mask_cases.h"
#include "tests/paillier/paillier_batches.h"

namespace paillier_mixed_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::Frame;
using tests::Integers;
using tests::key_pair;
using tests::Values;

namespace {

// Clients of a group whose masks differ, and what they want to be summed.
struct Group {
  Group(const Parameters& parameters, std::size_t size, const std::vector<double>& densities,
        std::uint64_t seed)
      : generator(seed) {
    for (const double density : densities) {
      masks.push_back(mask::Bitset::from_bools(tests::random_bools(size, density, generator)));
      integers.push_back(tests::random_integers(parameters, size, generator));
      values.push_back(tests::to_values(parameters, integers.back()));
    }
  }

  [[nodiscard]] UnionOrder order() const { return UnionOrder::from_masks(tests::pointers(masks)); }

  // A client's integers in the order of the union: those that it encrypts, or the others.
  [[nodiscard]] Integers in_union(const UnionOrder& order, std::size_t client, bool encrypted) const {
    Integers fields;
    for (const std::uint32_t position : order.positions()) {
      fields.push_back(masks[client].test(position) == encrypted ? integers[client][position] : 0);
    }
    return fields;
  }

  std::mt19937_64 generator;
  std::vector<mask::Bitset> masks;
  std::vector<Integers> integers;
  std::vector<Values> values;
};

}  // namespace

TEST(clients_with_different_masks_share_ciphertexts) {
  SystemSeedSource seeds;
  for (const Parameters& parameters : {tests::kDenseParameters, tests::kSingleParameters}) {
    const KeyPair& keys = key_pair(parameters);
    const Group group(parameters, 400, {0.5, 0.05, 0.0, 0.9}, 441);
    const UnionOrder order = group.order();
    for (const bool mixed : {false, true}) {
      Aggregator aggregator(keys.public_key, std::nullopt, 2, &order);
      Integers expected(order.positions().size(), 0);
      std::uint32_t weight = 1;
      for (std::size_t client = 0; client < group.masks.size(); ++client, weight += 3) {
        const Frame frame = tests::encrypt_in_union(*keys.public_key, group.values[client], order,
                                                    group.masks[client], seeds);
        const CiphertextView batch = tests::batch_view(frame);
        const mask::Bitset blocks = order.blocks_of(group.masks[client], parameters.values_per_ciphertext());
        CHECK(batch.present_count() == blocks.count());
        CHECK(!batch.present || *batch.present == blocks);
        tests::add_times(expected, weight, group.in_union(order, client, true));
        if (mixed) {
          const Integers clear = group.in_union(order, client, false);
          tests::add_times(expected, weight, clear);
          const Values reals = tests::to_values(parameters, clear);
          const std::vector<float> floats(reals.begin(), reals.end());
          if (client % 2 == 0) {
            aggregator.add_mixed<double>(batch, reals, weight);
          } else {
            aggregator.add_mixed<float>(batch, floats, weight);
          }
        } else {
          aggregator.add(frame, weight);
        }
      }
      const Frame total = tests::total_of(aggregator);
      CHECK(tests::total_view(total).total_weight == 1 + 4 + 7 + 10);
      CHECK(tests::open_integers(keys, total) == expected);
    }
  }
}

TEST(ciphertexts_that_nobody_sent_are_zero) {
  SystemSeedSource seeds;
  const Parameters& parameters = tests::kSingleParameters;
  const KeyPair& keys = key_pair(parameters);
  const Group group(parameters, 200, {0.5, 0.05, 1.0}, 442);
  const UnionOrder order = group.order();
  // The one who selected everything does not report.
  Aggregator aggregator(keys.public_key, std::nullopt, 1, &order);
  Integers expected;
  for (const std::size_t client : {1U, 0U}) {
    aggregator.add(
        tests::encrypt_in_union(*keys.public_key, group.values[client], order, group.masks[client], seeds));
    tests::add_times(expected, 1, group.in_union(order, client, true));
  }
  const Frame total = tests::total_of(aggregator);
  CHECK(tests::open_integers(keys, total) == expected);
  // The residue of each is 1, which is taken as any other.
  const CiphertextView view = tests::total_view(total);
  const auto nobody = mask::Bitset::full(200) - (group.masks[0] | group.masks[1]);
  std::vector<std::uint64_t> residue(parameters.ciphertext_words());
  for (std::size_t block = 0; block < 200; ++block) {
    read_residues(view, block, 1, residue);
    CHECK((BigInteger::from_words(residue) == BigInteger(1)) == nobody.test(order.positions()[block]));
  }
  Aggregator top(keys.public_key, std::nullopt, 2, &order);
  top.add_total(total);
  top.add(tests::encrypt_in_union(*keys.public_key, group.values[2], order, group.masks[2], seeds));
  tests::add_times(expected, 1, group.in_union(order, 2, true));
  CHECK(tests::open_integers(keys, tests::total_of(top)) == expected);
}

TEST(a_client_may_send_everything_in_the_clear) {
  SystemSeedSource seeds;
  const Parameters& parameters = tests::kDenseParameters;
  const KeyPair& keys = key_pair(parameters);
  const Group group(parameters, 300, {0.0, 0.3}, 443);
  const UnionOrder order = group.order();
  Aggregator aggregator(keys.public_key, std::nullopt, 2, &order);
  const Frame nothing =
      tests::encrypt_in_union(*keys.public_key, group.values[0], order, group.masks[0], seeds);
  CHECK(tests::batch_view(nothing).present_count() == 0);
  // What the ends of the range become under the largest weight still fits a field.
  Integers clear(order.positions().size());
  const std::int64_t limit = parameters.max_magnitude();
  for (std::size_t i = 0; i < clear.size(); ++i) clear[i] = i % 2 == 0 ? limit : -limit;
  aggregator.add_mixed<double>(tests::batch_view(nothing), tests::to_values(parameters, clear), 10);
  Integers expected;
  tests::add_times(expected, 10, clear);
  CHECK(tests::open_integers(keys, tests::total_of(aggregator)) == expected);
}

TEST(clear_values_are_rounded_as_encrypted_ones_are) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  const mask::Bitset mask = mask::Bitset::full(6);
  const std::vector<const mask::Bitset*> masks = {&mask};
  const UnionOrder order = UnionOrder::from_masks(masks);
  // Ties go to the even integer.
  const Values ties = {0x0.8p-20, 0x1.8p-20, 0x2.8p-20, -0x0.8p-20, -0x1.8p-20, 0x0.8001p-20};
  const Integers rounded = {0, 2, 2, 0, -2, 1};
  Aggregator aggregator(keys.public_key, std::nullopt, 1, &order);
  const Frame batch = tests::encrypt_in_union(*keys.public_key, ties, order, mask, seeds);
  aggregator.add_mixed<double>(tests::batch_view(batch), ties, 3);
  Integers expected;
  tests::add_times(expected, 6, rounded);
  CHECK(tests::open_integers(keys, tests::total_of(aggregator)) == expected);
}

TEST(refused_clear_values_leave_the_sum_as_it_was) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(tests::kSingleParameters);
  const mask::Bitset mask = mask::Bitset::full(100);
  const std::vector<const mask::Bitset*> masks = {&mask};
  const UnionOrder order = UnionOrder::from_masks(masks);
  const auto batch_of = [&] {
    return tests::encrypt_in_union(*keys.public_key, Values(100, 0.5), order, mask, seeds);
  };
  Aggregator aggregator(keys.public_key, std::nullopt, 2, &order);
  const Frame second = batch_of();
  const auto add = [&](const Values& clear, std::uint32_t weight) {
    aggregator.add_mixed<double>(tests::batch_view(second), clear, weight);
    return 0;
  };
  Values clear(100, 0.25);
  aggregator.add_mixed<double>(tests::batch_view(batch_of()), clear, 2);
  const Frame before = tests::total_of(aggregator);
  for (const double wrong :
       {8.0, -8.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Values altered = clear;
    altered[99] = wrong;
    CHECK_THROWS(add(altered, 1), ErrorCode::kRange);
  }
  for (const std::size_t count : {0U, 99U, 101U}) {
    CHECK_THROWS(add(Values(count, 0.25), 1), ErrorCode::kParameter);
  }
  for (const std::uint32_t weight : {0U, 11U}) CHECK_THROWS(add(clear, weight), ErrorCode::kParameter);
  CHECK(tests::total_of(aggregator) == before && aggregator.clients() == 1);
  add(clear, 1);
  CHECK(tests::open(keys, tests::total_of(aggregator)).values == Values(100, 2.25));
  CHECK_THROWS(add(clear, 1), ErrorCode::kDuplicateFrame);
}

TEST(batches_that_leave_ciphertexts_out_need_the_order_of_their_union) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(tests::kSingleParameters);
  const Group group(tests::kSingleParameters, 100, {0.5, 0.1}, 444);
  const UnionOrder order = group.order();
  const std::vector<const mask::Bitset*> others = {&group.masks[0]};
  const UnionOrder other = UnionOrder::from_masks(others);
  const Frame sparse =
      tests::encrypt_in_union(*keys.public_key, group.values[1], order, group.masks[1], seeds);
  CHECK(tests::batch_view(sparse).present.has_value());
  Aggregator without(keys.public_key, std::nullopt, 1);
  CHECK_THROWS(without.add(sparse), ErrorCode::kParameter);
  Aggregator with_other(keys.public_key, std::nullopt, 1, &other);
  CHECK_THROWS(with_other.add(sparse), ErrorCode::kParameter);
  Aggregator aggregator(keys.public_key, std::nullopt, 1, &order);
  aggregator.add(sparse);
  const Integers expected = group.in_union(order, 1, true);
  CHECK(tests::open_integers(keys, tests::total_of(aggregator)) == expected);
}

// Nobody sees whether a client also encrypted where it sends a number, so both have to fit.
TEST(values_in_the_clear_never_let_a_field_overflow) {
  SystemSeedSource seeds;
  const Parameters parameters = tests::altered(tests::kDenseParameters, [](auto& facts) {
    facts.max_clients = 2;
    facts.max_weight = 1;
  });
  const KeyPair& keys = key_pair(parameters);
  const mask::Bitset mask = mask::Bitset::full(50);
  const std::vector<const mask::Bitset*> masks = {&mask};
  const UnionOrder order = UnionOrder::from_masks(masks);
  const Values largest(50, parameters.fixed_point().value_limit());
  const auto batch_of = [&] {
    return tests::encrypt_in_union(*keys.public_key, largest, order, mask, seeds);
  };
  Aggregator aggregator(keys.public_key, std::nullopt, 1, &order);
  // One client's twofold largest value fits the guard bits of two, and then no second client does.
  aggregator.add_mixed<double>(tests::batch_view(batch_of()), largest, 1);
  CHECK_THROWS(aggregator.add(batch_of()), ErrorCode::kCapacity);
  CHECK(aggregator.clients() == 1);
  Aggregator both(keys.public_key, std::nullopt, 1, &order);
  both.add(batch_of());
  CHECK_THROWS(both.add_mixed<double>(tests::batch_view(batch_of()), largest, 1), ErrorCode::kCapacity);
  both.add_mixed<double>(tests::batch_view(batch_of()), Values(50, 0.0), 1);
  const Integers expected(50, 2 * parameters.max_magnitude());
  CHECK(tests::open_integers(keys, tests::total_of(both)) == expected);
  // A total says that it holds such values, also after it went through another aggregator.
  for (int passed_on = 0; passed_on < 2; ++passed_on) {
    Aggregator next(keys.public_key, std::nullopt, 1, &order);
    next.add_total(tests::total_of(aggregator));
    if (passed_on == 1) {
      Aggregator last(keys.public_key, std::nullopt, 1, &order);
      last.add_total(tests::total_of(next));
      CHECK_THROWS(last.add(batch_of()), ErrorCode::kCapacity);
    }
    CHECK_THROWS(next.add(batch_of()), ErrorCode::kCapacity);
    CHECK(tests::total_of(next) == tests::total_of(aggregator));
  }
  // One without them takes the room that it takes.
  Aggregator plain(keys.public_key, std::nullopt, 1, &order);
  Aggregator subtotal(keys.public_key, std::nullopt, 1, &order);
  subtotal.add(batch_of());
  plain.add_total(tests::total_of(subtotal));
  plain.add(batch_of());
  CHECK(tests::open_integers(keys, tests::total_of(plain)) == expected);
}

}  // namespace paillier_mixed_tests
