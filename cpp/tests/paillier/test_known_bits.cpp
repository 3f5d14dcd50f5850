// What clients, aggregator and authority make of fixed seeds, to the last bit, whatever the engine.
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/check.h"
#include "tests/known_bits.h"
#include "tests/mask/mask_cases.h"
#include "tests/paillier/paillier_batches.h"

namespace paillier_known_bits_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using namespace shieldfl::tests;

namespace {

// Two clients, one with doubles and one with floats, with a mask and encrypted weights.
KnownBits bits_of_a_round(const Parameters& parameters, std::size_t size) {
  const KeyPair& keys = key_pair(parameters);
  const double limit = parameters.fixed_point().value_limit();
  const mask::Bitset mask = known_mask(size, 1);
  InsecureTestRandom seeds(2026);
  EncryptOptions options;
  options.round = 3;
  options.weight = 0.5;
  const std::vector<Frame> batches = {
      encrypt(*keys.public_key, known_values<double>(size, limit, 1), seeds, options, &mask),
      encrypt(*keys.public_key, known_values<float>(size, limit, 2), seeds, options, &mask)};
  Aggregator aggregator(keys.public_key, std::nullopt, 2);
  for (const Frame& batch : batches) aggregator.add(batch);
  const Frame total = total_of(aggregator);
  return {{"public key", bits_of(keys.public_key->to_frame())},
          {"batch of doubles", bits_of(batches[0])},
          {"batch of floats", bits_of(batches[1])},
          {"total", bits_of(total)},
          {"opened sums", bits_of(open(keys, total).values)}};
}

// Two clients whose masks differ, the second with three times the weight of the first.
KnownBits bits_of_a_union(const Parameters& parameters) {
  const KeyPair& keys = key_pair(parameters);
  const double limit = parameters.fixed_point().value_limit();
  const std::vector<mask::Bitset> masks = {known_mask(200, 1), known_mask(200, 2)};
  const UnionOrder order = UnionOrder::from_masks(pointers(masks));
  InsecureTestRandom seeds(2026);
  Aggregator aggregator(keys.public_key, std::nullopt, 2, &order);
  std::vector<Frame> batches;
  for (std::uint32_t client = 0; client < 2; ++client) {
    batches.push_back(encrypt_in_union(*keys.public_key, known_values<double>(200, limit, client), order,
                                       masks[client], seeds));
    aggregator.add(batches.back(), 2 * client + 1);
  }
  const Frame total = total_of(aggregator);
  return {{"order", bits_of(order.to_frame())},
          {"first batch", bits_of(batches[0])},
          {"second batch", bits_of(batches[1])},
          {"total", bits_of(total)},
          {"opened sums", bits_of(open(keys, total).values)}};
}

}  // namespace

TEST(rounds_have_known_bits) {
  check_known_bits("dense", bits_of_a_round(kDenseParameters, 1000),
                   {{"public key", "a9aa0d050757e279"},
                    {"batch of doubles", "d41e34b53a69a20c"},
                    {"batch of floats", "3b393001e9a87284"},
                    {"total", "9913a855f14b1f16"},
                    {"opened sums", "a1a77f5250797870"}});
  check_known_bits("single", bits_of_a_round(kSingleParameters, 20),
                   {{"public key", "6522c07c3197dcbb"},
                    {"batch of doubles", "42ed55c666b7ff32"},
                    {"batch of floats", "ce663f097ace066f"},
                    {"total", "0d041efceaf6f297"},
                    {"opened sums", "78318b7d7264095d"}});
  check_known_bits("classical", bits_of_a_round(kClassicalParameters, 500),
                   {{"public key", "d993f0aca6d28da2"},
                    {"batch of doubles", "88b29f4d102a86ba"},
                    {"batch of floats", "36ef5923c4ff62fc"},
                    {"total", "164f9aa7b3fe2bfc"},
                    {"opened sums", "891e77940af51ad0"}});
}

TEST(unions_have_known_bits) {
  check_known_bits("union", bits_of_a_union(kDenseParameters),
                   {{"order", "083f92744118c502"},
                    {"first batch", "6827a8b3efa82af3"},
                    {"second batch", "5e9d506f5951f42b"},
                    {"total", "2b8f03d6e90227d4"},
                    {"opened sums", "545af27c64782fea"}});
}

}  // namespace paillier_known_bits_tests
