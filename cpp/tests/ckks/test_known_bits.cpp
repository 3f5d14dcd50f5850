// What clients, aggregator and authority make of fixed seeds, to the last bit: in the exact packing, since
// the encoder of slots works in floating point, with the C library's sines.
#include <optional>
#include <vector>

#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/known_bits.h"

namespace ckks_known_bits_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using namespace shieldfl::tests;

namespace {

// Two clients, one with doubles and one with floats, with a mask and weights.
KnownBits bits_of_a_round(const ParameterRequest& parameters, double weight) {
  const KeyPair& keys = key_pair(parameters);
  const double limit = keys.public_key->parameters()->value_limit();
  const mask::Bitset mask = known_mask(10'007, 1);
  InsecureTestRandom seeds(2026);
  EncryptOptions options;
  options.round = 3;
  options.weight = weight;
  const std::vector<Frame> batches = {
      encrypt_batch(keys, known_values<double>(mask.size(), limit, 1), seeds, options, &mask).frame,
      encrypt_batch(keys, known_values<float>(mask.size(), limit, 2), seeds, options, &mask).frame};
  const Frame total = total_of(keys, batches);
  return {{"public key", bits_of(keys.public_key->to_frame())},
          {"batch of doubles", bits_of(batches[0])},
          {"batch of floats", bits_of(batches[1])},
          {"total", bits_of(total)},
          {"opened sums", bits_of(open(keys, total).values)}};
}

}  // namespace

TEST(rounds_of_the_exact_packing_have_known_bits) {
  ParameterRequest parameters;
  parameters.max_clients = 5;
  parameters.ring_degree = 2048;
  check_known_bits("exact, ring of 2048", bits_of_a_round(parameters, 0.5),
                   {{"public key", "43eb556ca2446675"},
                    {"batch of doubles", "db4d53bbb2bce668"},
                    {"batch of floats", "e46f13a9b75a5a69"},
                    {"total", "462f0f35eeacd5fe"},
                    {"opened sums", "044362f8209096ad"}});
  parameters.ring_degree = 4096;
  check_known_bits("exact, ring of 4096", bits_of_a_round(parameters, 0.5),
                   {{"public key", "25408a756a0a85b6"},
                    {"batch of doubles", "9475c564217b7314"},
                    {"batch of floats", "469c8b213f62b44e"},
                    {"total", "f86712177165e71c"},
                    {"opened sums", "044362f8209096ad"}});
  check_known_bits("exact, five in a coefficient",
                   bits_of_a_round({Packing::kExact, 20, 2, 0, std::nullopt}, 1.0),
                   {{"public key", "81f42ac14f00b3f0"},
                    {"batch of doubles", "2c4ed5634d4c3c0b"},
                    {"batch of floats", "384fd32585d15465"},
                    {"total", "731d66b56753eb3c"},
                    {"opened sums", "d068a0c26b0d98ae"}});
}

}  // namespace ckks_known_bits_tests
