#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/mask/mask_cases.h"
#include "tests/paillier/paillier_batches.h"

namespace paillier_encryptor_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::Frame;
using tests::Integers;
using tests::key_pair;
using tests::Values;

namespace {

Integers opened_alone(const KeyPair& keys, const Frame& batch) {
  Aggregator aggregator(keys.public_key, std::nullopt, 2);
  aggregator.add(batch);
  return tests::open_integers(keys, tests::total_of(aggregator));
}

std::string range_error(const std::function<void()>& encrypt) {
  try {
    encrypt();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRange);
    return error.what();
  }
  return "";
}

}  // namespace

TEST(a_paillier_encryptor_tells_the_length_of_its_frames) {
  std::mt19937_64 generator(421);
  SystemSeedSource seeds;
  for (const Parameters& parameters : {tests::kDenseParameters, tests::kSingleParameters}) {
    const KeyPair& keys = key_pair(parameters);
    const Encryptor encryptor(keys.public_key);
    const std::size_t block = parameters.values_per_ciphertext();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, 3 * block}) {
      const mask::Bitset mask = mask::Bitset::from_bools(tests::random_bools(size, 0.6, generator));
      for (const mask::Bitset* chosen : {static_cast<const mask::Bitset*>(nullptr), &mask}) {
        for (const bool weighted : {false, true}) {
          const std::uint64_t count = (chosen == nullptr ? size : chosen->count()) + (weighted ? 1 : 0);
          const std::size_t bytes = tests::PaillierOffsets::payload(1) + kFrameTrailerBytes +
                                    (count + block - 1) / block * parameters.ciphertext_bytes();
          CHECK(encryptor.frame_bytes(size, chosen, weighted) == bytes);
          EncryptOptions options;
          if (weighted) options.weight = 1.0;
          const Frame frame = tests::encrypt(*keys.public_key, Values(size, 0.25), seeds, options, chosen);
          const CiphertextView view = tests::batch_view(frame);
          CHECK(view.layout.field_count() == count && view.layout.weighted == weighted);
          CHECK(view.layout.mask_id == scheme::mask_id(size, chosen));
        }
      }
      CHECK_THROWS(encryptor.frame_bytes(size + 1, &mask, false), ErrorCode::kParameter);
      for (const std::size_t wrong : {std::size_t{0}, encryptor.frame_bytes(size, &mask, false) + 1}) {
        Frame other(wrong, 0xee);
        const Values values(size, 0.5);
        CHECK_THROWS(encryptor.encrypt(scheme::ValuePieces<double>(values), &mask, {}, seeds, nullptr, other),
                     ErrorCode::kInternal);
        CHECK(other == Frame(wrong, 0xee));
      }
    }
  }
}

TEST(paillier_opens_to_what_was_encrypted) {
  std::mt19937_64 generator(422);
  SystemSeedSource seeds;
  for (const Parameters& parameters :
       {tests::kDenseParameters, tests::kSingleParameters, tests::kClassicalParameters}) {
    const KeyPair& keys = key_pair(parameters);
    for (const std::size_t size : {0U, 1U, 66U, 67U, 300U}) {
      // Where each value has a ciphertext of its own, 66 and 67 of them show what 300 would.
      if (size > 67 && parameters.values_per_ciphertext() == 1) continue;
      const Integers integers = tests::random_integers(parameters, size, generator);
      const Values values = tests::to_values(parameters, integers);
      CHECK(opened_alone(keys, tests::encrypt(*keys.public_key, values, seeds)) == integers);
      const std::vector<float> floats(values.begin(), values.end());
      CHECK(opened_alone(keys, tests::encrypt(*keys.public_key, floats, seeds)) == integers);

      const mask::Bitset mask = mask::Bitset::from_bools(tests::random_bools(size, 0.4, generator));
      Integers chosen;
      for (std::size_t i = 0; i < size; ++i) {
        if (mask.test(i)) chosen.push_back(integers[i]);
      }
      CHECK(opened_alone(keys, tests::encrypt(*keys.public_key, values, seeds, {}, &mask)) == chosen);
    }
  }
}

TEST(paillier_frames_depend_on_the_seed_and_not_on_the_threads) {
  std::mt19937_64 generator(423);
  for (const Parameters& parameters :
       {tests::kDenseParameters, tests::kSingleParameters, tests::kClassicalParameters}) {
    const KeyPair& keys = key_pair(parameters);
    const std::size_t size = 40 * parameters.values_per_ciphertext() + 1;
    const Values values = tests::to_values(parameters, tests::random_integers(parameters, size, generator));
    const mask::Bitset mask = mask::Bitset::from_bools(tests::random_bools(size, 0.5, generator));
    const std::vector<const mask::Bitset*> masks = {&mask};
    const UnionOrder order = UnionOrder::from_masks(masks);
    const mask::Bitset part = mask & mask::Bitset::from_bools(tests::random_bools(size, 0.02, generator));
    const auto frame_of = [&](std::uint64_t seed, std::size_t threads, bool lookups_vartime, bool in_union) {
      InsecureTestRandom seeds(seed);
      EncryptOptions options;
      options.threads = threads;
      options.lookups_vartime = lookups_vartime;
      return in_union ? tests::encrypt_in_union(*keys.public_key, values, order, part, seeds, options)
                      : tests::encrypt(*keys.public_key, values, seeds, options, &mask);
    };
    for (const bool in_union : {false, true}) {
      const Frame frame = frame_of(1, 1, false, in_union);
      for (const std::size_t threads : {2U, 3U, 7U}) CHECK(frame_of(1, threads, false, in_union) == frame);
      CHECK(frame_of(1, 2, true, in_union) == frame);
      CHECK(frame_of(2, 1, false, in_union) != frame);
    }
  }
}

TEST(no_two_ciphertexts_of_equal_values_are_equal) {
  InsecureTestRandom seeds(424);
  const KeyPair& keys = key_pair(tests::kSingleParameters);
  std::set<Frame> different;
  for (int i = 0; i < 2; ++i) {
    const Frame frame = tests::encrypt(*keys.public_key, Values(100, 0.5), seeds);
    const CiphertextView view = tests::batch_view(frame);
    const std::size_t bytes = view.parameters.ciphertext_bytes();
    for (std::size_t place = 0; place < 100; ++place) {
      const auto residue = view.payload.subspan(place * bytes, bytes);
      different.emplace(residue.begin(), residue.end());
    }
  }
  CHECK(different.size() == 200);
}

TEST(encrypted_weights_scale_values_and_are_summed) {
  SystemSeedSource seeds;
  for (const Parameters& parameters : {tests::kDenseParameters, tests::kSingleParameters}) {
    const KeyPair& keys = key_pair(parameters);
    // With 67 fields in a dense ciphertext, the weight begins a ciphertext, or is the last of one.
    for (const std::size_t size : {0U, 66U, 67U}) {
      Aggregator aggregator(keys.public_key, std::nullopt, 1);
      EncryptOptions options;
      for (const double weight : {0.5, 0.25, 1.0}) {
        options.weight = weight;
        aggregator.add(tests::encrypt(*keys.public_key, Values(size, -3.0), seeds, options));
      }
      const OpenedSums opened = tests::open(keys, tests::total_of(aggregator));
      CHECK(opened.weight_sum == 1.75 && opened.values == Values(size, -5.25));
      options.weight = 0.0;
      CHECK_THROWS(tests::encrypt(*keys.public_key, Values(size, 1.0), seeds, options),
                   ErrorCode::kParameter);
    }
  }
}

TEST(paillier_refuses_the_lowest_position_out_of_range) {
  SystemSeedSource seeds;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Parameters& parameters : {tests::kDenseParameters, tests::kSingleParameters}) {
    const KeyPair& keys = key_pair(parameters);
    // Of some ten ciphertexts of many values, or some hundred of one.
    const std::size_t size = parameters.facts().packing == Packing::kDense ? 1500 : 300;
    const std::size_t first = size / 2;
    const std::size_t first_late = size / 5 * 4;
    // Every second position, the last ones the most popular: a union's first fields are not its lowest
    // positions.
    std::vector<std::int64_t> even;
    std::vector<std::int64_t> late;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(size); i += 2) {
      even.push_back(i);
      if (i >= static_cast<std::int64_t>(size / 3 * 2)) late.push_back(i);
    }
    const auto mask = mask::Bitset::from_indices(even, size);
    const auto other = mask::Bitset::from_indices(late, size);
    const std::vector<const mask::Bitset*> masks = {&mask, &other};
    const UnionOrder order = UnionOrder::from_masks(masks);
    for (const double wrong : {kNan, kInfinity, 8.0, -8.0}) {
      Values values(size, 0.5);
      values[1] = kNan;  // selected by nobody
      for (const std::size_t position : {size - 2, first, first_late}) values[position] = wrong;
      for (const std::size_t threads : {1U, 2U, 3U}) {
        EncryptOptions options;
        options.threads = threads;
        CHECK(range_error([&] {
                tests::encrypt(*keys.public_key, values, seeds, options, &mask);
              }).starts_with("the value at position " + std::to_string(first) + " "));
        CHECK(range_error([&] {
                tests::encrypt_in_union(*keys.public_key, values, order, mask, seeds, options);
              }).starts_with("the value at position " + std::to_string(first) + " "));
        CHECK(range_error([&] {
                tests::encrypt_in_union(*keys.public_key, values, order, other, seeds, options);
              }).starts_with("the value at position " + std::to_string(first_late) + " "));
      }
    }
  }
}

TEST(clipped_values_are_counted) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  const Encryptor encryptor(keys.public_key);
  Values values(200, 0.0);
  for (const std::size_t position : {0U, 66U, 67U, 199U}) values[position] = position % 2 == 0 ? 1e30 : -1e30;
  const mask::Bitset all = mask::Bitset::full(200);
  const std::vector<const mask::Bitset*> masks = {&all};
  const UnionOrder order = UnionOrder::from_masks(masks);
  EncryptOptions options;
  options.clip = true;
  options.threads = 2;
  for (const bool in_union : {false, true}) {
    Frame frame(encryptor.frame_bytes(200, nullptr, false));
    const std::span<const double> all_values(values);
    const scheme::ValueCounts counts =
        in_union ? encryptor.encrypt_in_union(all_values, order, all, options, seeds, nullptr, frame)
                 : encryptor.encrypt(scheme::ValuePieces<double>(all_values), nullptr, options, seeds,
                                     nullptr, frame);
    CHECK((counts == scheme::ValueCounts{4, 0, 4}));
    const Integers opened = opened_alone(keys, frame);
    const std::int64_t limit = tests::kDenseParameters.max_magnitude();
    for (std::size_t i = 0; i < 200; ++i) {
      CHECK(opened[i] == (values[i] == 0.0 ? 0 : values[i] > 0.0 ? limit : -limit));
    }
  }
}

TEST(values_that_round_to_zero_are_counted_in_every_packing) {
  SystemSeedSource seeds;
  Values values(300, 0.0);
  for (std::size_t i = 0; i < 300; i += 3) values[i] = i % 2 == 0 ? 0x1p-30 : -1.0;
  const mask::Bitset all = mask::Bitset::full(300);
  const mask::Bitset some = mask::Bitset::from_indices(std::vector<std::int64_t>{0, 1, 3, 6, 12, 15}, 300);
  const std::vector<const mask::Bitset*> masks = {&all, &some};
  const UnionOrder order = UnionOrder::from_masks(masks);
  const std::span<const double> span(values);
  for (const Parameters& parameters : {tests::kDenseParameters, tests::kSingleParameters}) {
    const KeyPair& keys = key_pair(parameters);
    const Encryptor encryptor(keys.public_key);
    for (const std::size_t threads : {1U, 3U}) {
      EncryptOptions options;
      options.threads = threads;
      Frame frame(encryptor.frame_bytes(300, nullptr, false));
      CHECK((encryptor.encrypt(scheme::ValuePieces<double>(span), nullptr, options, seeds, nullptr, frame) ==
             scheme::ValueCounts{100, 50, 0}));
      Frame in_union(encryptor.union_frame_bytes(order, some));
      CHECK((encryptor.encrypt_in_union(span, order, some, options, seeds, nullptr, in_union) ==
             scheme::ValueCounts{5, 3, 0}));
    }
  }
}

TEST(what_does_not_fit_a_union_is_not_encrypted_in_it) {
  SystemSeedSource seeds;
  const KeyPair& keys = key_pair(tests::kDenseParameters);
  const auto mask = mask::Bitset::from_indices(std::vector<std::int64_t>{1, 3}, 10);
  const auto outside = mask::Bitset::from_indices(std::vector<std::int64_t>{1, 2}, 10);
  const std::vector<const mask::Bitset*> masks = {&mask};
  const UnionOrder order = UnionOrder::from_masks(masks);
  const auto encrypt = [&](std::size_t size, const mask::Bitset& chosen, const EncryptOptions& options) {
    return tests::encrypt_in_union(*keys.public_key, Values(size, 1.0), order, chosen, seeds, options);
  };
  CHECK(tests::batch_view(encrypt(10, mask, {})).layout.mask_id == order.id());
  EncryptOptions weighted;
  weighted.weight = 0.5;
  CHECK_THROWS(encrypt(10, mask, weighted), ErrorCode::kParameter);
  CHECK_THROWS(encrypt(10, outside, {}), ErrorCode::kParameter);
  CHECK_THROWS(encrypt(11, mask, {}), ErrorCode::kParameter);
  CHECK_THROWS(encrypt(10, mask::Bitset::full(11), {}), ErrorCode::kParameter);
}

}  // namespace paillier_encryptor_tests
