#include <cmath>
#include <cstdint>
#include <vector>

#include "ckks/noise_bound.h"
#include "ring/sampler.h"
#include "tests/check.h"
#include "tests/ckks_cases.h"
#include "tests/statistics.h"

using namespace shieldfl;
using namespace shieldfl::ckks;
using tests::Frame;
using tests::key_pair;
using tests::Values;

namespace {

// One prime each, so that a coefficient is its noise plus the message without further arithmetic.
const ParameterRequest kRequest = {Packing::kExact, 64, 20, 12, 2048};

// The variance of every coefficient of the noise, given the key: u e, e0 and e1 s of each client.
double predicted_variance(const KeyPair& keys, std::size_t clients) {
  const KeyNorms norms = measure_keys(*keys.public_key->parameters(), keys.secret_key->factors(),
                                      keys.public_key->factors0(), keys.public_key->factors1());
  return static_cast<double>(clients) *
         (ring::kErrorVariance * (1.0 + static_cast<double>(norms.secret_weight)) +
          2.0 / 3.0 * static_cast<double>(norms.error_norm));
}

// The noise of every coefficient of the sum of `clients` updates of `blocks` ciphertexts each.
std::vector<double> measured_noise(const KeyPair& keys, std::size_t clients, std::size_t blocks,
                                   std::mt19937_64& generator) {
  const ParameterFacts& facts = tests::facts_of(keys);
  InsecureTestRandom seeds(generator());
  std::vector<std::int64_t> sums(blocks * facts.values_per_block(), 0);
  Aggregator aggregator(keys.public_key, std::nullopt, 1);
  for (std::size_t client = 0; client < clients; ++client) {
    const Values values = tests::random_values(*keys.public_key->parameters(), sums.size(), generator);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += tests::fixed_point(facts, values[i]);
    aggregator.add(tests::encrypt(keys, values, seeds));
  }
  const Frame frame = aggregator.total();
  const CiphertextView total = CiphertextView::parse(frame, FrameKind::kCkksTotal);
  std::vector<double> noise;
  std::vector<std::uint64_t> row(facts.degree);
  for (std::size_t block = 0; block < blocks; ++block) {
    Decryptor(keys.secret_key).decrypt_block(total, block, row);
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::int64_t message = 0;
      for (std::size_t field = 0; field < facts.values_per_coefficient; ++field) {
        message += sums[block * facts.values_per_block() + field * facts.degree + i]
                   << (facts.log2_scale + field * facts.field_bits());
      }
      noise.push_back(static_cast<double>(ring::centered(row[i], facts.primes[0]) - message));
    }
  }
  return noise;
}

}  // namespace

TEST(noise_has_the_predicted_variance_and_no_bias) {
  std::mt19937_64 generator(111);
  const KeyPair& keys = key_pair(kRequest);
  const std::size_t degree = tests::facts_of(keys).degree;
  constexpr std::size_t kBlocks = 24;
  for (const std::size_t clients : {1, 16, 64}) {
    const auto noise = measured_noise(keys, clients, kBlocks, generator);
    const double variance = predicted_variance(keys, clients);
    CHECK(variance <= noise_variance_bound(degree, clients));

    double squares = 0.0;
    double largest = 0.0;
    std::vector<double> sums(degree, 0.0);  // of each coefficient over the blocks
    for (std::size_t i = 0; i < noise.size(); ++i) {
      squares += noise[i] * noise[i];
      largest = std::max(largest, std::fabs(noise[i]));
      sums[i % degree] += noise[i];
    }
    const double ratio = squares / static_cast<double>(noise.size()) / variance;
    // M independent squares have a relative deviation of sqrt(2 / M). Coefficients of a block are correlated,
    // since the key is fixed, with squared correlations that sum to about 1 over a block: at most twice that.
    const double deviation = std::sqrt(4.0 / static_cast<double>(noise.size()));
    CHECK(std::fabs(ratio - 1.0) < tests::normal_limit() * deviation);
    const double of_bound =
        squares / static_cast<double>(noise.size()) / noise_variance_bound(degree, clients);
    CHECK(of_bound > 0.5 && of_bound < 1.0);

    CHECK(largest < noise_bound(degree, clients));
    // The bound's shape is right too: among M sub-Gaussian draws the largest is below this, and not far
    // below.
    const auto draws = static_cast<double>(noise.size());
    CHECK(largest < std::sqrt(2.0 * variance * std::log(2.0 * draws / tests::kFailure)));
    CHECK(largest > std::sqrt(2.0 * variance * std::log(draws)) / 2.0);
    // No coefficient has a mean: sub-Gaussian sums of independent blocks, all coefficients at once.
    const double limit =
        std::sqrt(2.0 * kBlocks * variance * std::log(2.0 * static_cast<double>(degree) / tests::kFailure));
    for (const double sum : sums) CHECK(std::fabs(sum) < limit);
  }
}

TEST(noise_bounds_are_what_the_formulas_say) {
  for (const std::size_t degree : {2048, 4096}) {
    for (const std::uint64_t clients : {1, 64, 1 << 20}) {
      const double variance = noise_variance_bound(degree, clients);
      CHECK(std::fabs(variance / static_cast<double>(clients) / noise_variance_bound(degree, 1) - 1.0) <
            1e-12);
      const double bound = noise_bound(degree, clients);
      // 2 exp(-B^2 / (2 V)) is 2^-96, and a sum over 2^32 coefficients therefore 2^-64.
      CHECK(std::fabs(1.0 - bound * bound / (2.0 * variance * std::log(2.0)) + 96.0) < 1e-9);
    }
  }
}
