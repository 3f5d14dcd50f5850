#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ckks/noise_bound.h"
#include "ring/sampler.h"
#include "tests/check.h"
#include "tests/ckks/ckks_cases.h"
#include "tests/statistics.h"

namespace ckks_noise_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using ring::UInt128;
using tests::Frame;
using tests::key_pair;
using tests::Values;

namespace {

// One prime, and two with several values in a coefficient.
const std::vector<ParameterRequest> kRequests = {{Packing::kExact, 64, 20, 12, 2048},
                                                 {Packing::kExact, 64, 20, 12, 4096}};

// The variance of every coefficient of the noise, given the key: u e, e0 and e1 s of each client.
double noise_variance(const KeyPair& keys, std::size_t clients) {
  const KeyNorms norms = measure_keys(*keys.secret_key, *keys.public_key);
  return static_cast<double>(clients) *
         (ring::kErrorVariance * (1.0 + static_cast<double>(norms.secret_weight)) +
          2.0 / 3.0 * static_cast<double>(norms.error_norm));
}

// That of what dropping does: each error is uniform on 2^d integers, and those of the second half come times
// s.
double dropping_variance(const KeyPair& keys, std::size_t clients) {
  const ParameterFacts& facts = tests::facts_of(keys);
  const auto weight = static_cast<double>(measure_keys(*keys.secret_key, *keys.public_key).secret_weight);
  const auto uniform = [](unsigned bits) {
    return (std::ldexp(1.0, 2 * static_cast<int>(bits)) - 1.0) / 12.0;
  };
  return static_cast<double>(clients) *
         (uniform(facts.dropped_bits0) + weight * uniform(facts.dropped_bits1));
}

// The means of the errors: 0 for an even number of clients; for an odd one 1/2 in every coefficient of both
// halves, those of the second times s.
std::vector<double> error_means(const KeyPair& keys, std::size_t clients) {
  const ParameterFacts& facts = tests::facts_of(keys);
  const auto secret = keys.secret_key->export_secret();
  std::vector<double> means(facts.degree, 0.0);
  if (clients % 2 == 0) return means;
  double sum = 0.0;  // of s_0 to s_k less the rest: coefficient k of s (1 + X + X^2 + ...)
  for (std::size_t i = 0; i < means.size(); ++i) sum -= static_cast<std::int8_t>(secret[i]);
  for (std::size_t k = 0; k < means.size(); ++k) {
    sum += 2.0 * static_cast<std::int8_t>(secret[k]);
    means[k] = (facts.dropped_bits0 != 0 ? 0.5 : 0.0) + (facts.dropped_bits1 != 0 ? 0.5 * sum : 0.0);
  }
  return means;
}

// The message of coefficient `i` modulo q, of sums that lie field after field.
std::uint64_t message_of(const ParameterFacts& facts, std::span<const std::int64_t> sums, std::size_t i,
                         std::uint64_t q) {
  std::uint64_t message = 0;
  for (std::size_t field = 0; field < facts.values_per_coefficient; ++field) {
    const std::int64_t sum = sums[field * facts.degree + i] % static_cast<std::int64_t>(q);
    const std::uint64_t factor = ring::power_vartime(2, facts.log2_scale + field * facts.field_bits(), q);
    message = ring::add(
        message, static_cast<std::uint64_t>(static_cast<UInt128>(ring::residue(sum, q)) * factor % q), q);
  }
  return message;
}

// The error of every coefficient of the sum of `clients` updates of `blocks` ciphertexts each. It is far
// smaller than any prime, so that each prime tells it.
std::vector<double> measured_errors(const KeyPair& keys, std::size_t clients, std::size_t blocks,
                                    std::mt19937_64& generator) {
  const ParameterFacts& facts = tests::facts_of(keys);
  InsecureTestRandom seeds(generator());
  std::vector<std::int64_t> sums(blocks * facts.values_per_block(), 0);
  Aggregator aggregator(keys.public_key, {}, 1);
  for (std::size_t client = 0; client < clients; ++client) {
    const Values values = tests::random_values(*keys.public_key->parameters(), sums.size(), generator);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += tests::fixed_point(facts, values[i]);
    aggregator.add(tests::encrypt(keys, values, seeds));
  }
  const Frame frame = tests::total_of(aggregator);
  const CiphertextView total = CiphertextView::parse(frame, FrameKind::kCkksTotal);
  std::vector<double> errors;
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto block_sums =
        std::span(sums).subspan(block * facts.values_per_block(), facts.values_per_block());
    const std::vector<std::uint64_t> rows = tests::decrypted(keys, total, block);
    for (std::size_t i = 0; i < facts.degree; ++i) {
      std::int64_t error = 0;
      for (std::size_t p = 0; p < facts.primes.size(); ++p) {
        const std::uint64_t q = facts.primes[p];
        const std::uint64_t message = message_of(facts, block_sums, i, q);
        const std::int64_t here =
            ring::centered(ring::add(rows[p * facts.degree + i], (q - message) % q, q), q);
        CHECK(p == 0 || here == error);
        error = here;
      }
      errors.push_back(static_cast<double>(error));
    }
  }
  return errors;
}

void check_errors(const KeyPair& keys, std::size_t clients, std::size_t blocks, std::mt19937_64& generator) {
  const ParameterFacts& facts = tests::facts_of(keys);
  const std::size_t degree = facts.degree;
  const double noise = noise_variance(keys, clients);
  CHECK(noise <= noise_variance_bound(degree, clients) &&
        noise > 0.5 * noise_variance_bound(degree, clients));
  // Dropping must show, or else this would say nothing of it.
  const double variance = noise + dropping_variance(keys, clients);
  CHECK(variance > 1.2 * noise);

  std::vector<double> errors = measured_errors(keys, clients, blocks, generator);
  const std::vector<double> means = error_means(keys, clients);
  double largest = 0.0;
  double squares = 0.0;
  std::vector<double> sums(degree, 0.0);  // of each coefficient over the blocks
  for (std::size_t i = 0; i < errors.size(); ++i) {
    largest = std::max(largest, std::fabs(errors[i]));
    errors[i] -= means[i % degree];
    squares += errors[i] * errors[i];
    sums[i % degree] += errors[i];
  }
  // M independent squares have a relative deviation of sqrt(2 / M). Coefficients of a block are correlated,
  // since the key is fixed, with squared correlations that sum to about 1 over a block: at most twice that.
  const auto draws = static_cast<double>(errors.size());
  const double ratio = squares / draws / variance;
  CHECK(std::fabs(ratio - 1.0) < tests::normal_limit() * std::sqrt(4.0 / draws));

  CHECK(largest < error_bound(degree, clients, facts.dropped_bits()));
  CHECK(error_bound(degree, facts.max_clients, facts.dropped_bits()) ==
        keys.public_key->parameters()->error_bound());
  // The bound's shape is right too: among M sub-Gaussian draws the largest is below this, and not far below.
  CHECK(largest < std::sqrt(2.0 * variance * std::log(2.0 * draws / tests::kFailure)));
  CHECK(largest > std::sqrt(2.0 * variance * std::log(draws)) / 2.0);
  // No coefficient has another mean: sub-Gaussian sums of independent blocks, all coefficients at once.
  const double limit = std::sqrt(2.0 * static_cast<double>(blocks) * variance *
                                 std::log(2.0 * static_cast<double>(degree) / tests::kFailure));
  for (const double sum : sums) CHECK(std::fabs(sum) < limit);
  // Nor have all of them together: they are correlated as said above, so that the sum of M of them has a
  // variance of M V (1 + |sum of s|^2 / |s|^2) or so, far below 100 M V.
  double all = 0.0;
  for (const double sum : sums) all += sum;
  CHECK(std::fabs(all) < tests::normal_limit() * 10.0 * std::sqrt(draws * variance));
}

}  // namespace

TEST(errors_have_the_predicted_variance_and_no_bias) {
  std::mt19937_64 generator(111);
  for (const ParameterRequest& request : kRequests) {
    for (const std::size_t clients : {1, 3, 16, 64}) check_errors(key_pair(request), clients, 16, generator);
  }
}

TEST(noise_bounds_are_what_the_formulas_say) {
  for (const std::size_t degree : {2048, 4096}) {
    for (const std::uint64_t clients : {1, 64, 1 << 20}) {
      const double variance = noise_variance_bound(degree, clients);
      CHECK(std::fabs(variance / static_cast<double>(clients) / noise_variance_bound(degree, 1) - 1.0) <
            1e-12);
      const double bound = noise_bound(degree, clients);
      // 2 exp(-B^2 / (2 V)) is 2^-97.
      CHECK(std::fabs(1.0 - bound * bound / (2.0 * variance * std::log(2.0)) + 97.0) < 1e-9);
    }
  }
}

TEST(dropping_bounds_are_what_the_formulas_say) {
  for (const std::size_t degree : {2048, 4096}) {
    const double weight = kMaxSecretWeightPerDegree * static_cast<double>(degree);
    for (const std::uint64_t clients : {1, 64, 1 << 20}) {
      const auto k = static_cast<double>(clients);
      CHECK(dropping_bound(degree, clients, {}) == 0.0);
      CHECK(error_bound(degree, clients, {}) == noise_bound(degree, clients));
      double previous0 = 0.0;
      double previous1 = 0.0;
      for (unsigned bits = 1; bits <= 16; ++bits) {
        // K times half of 2^d, and the rounding of the correction.
        const double half0 = dropping_bound(degree, clients, {bits, 0});
        CHECK(half0 == k * std::ldexp(0.5, static_cast<int>(bits)) + 0.5);
        // 2 exp(-B^2 / (2 V)) is 2^-97 again, for K |s|_0 uniform errors, and the rounding times s.
        const double half1 = dropping_bound(degree, clients, {0, bits});
        const double tail = half1 - 0.5 * weight;
        const double variance = k * weight * std::ldexp(1.0, 2 * static_cast<int>(bits)) / 12.0;
        CHECK(std::fabs(1.0 - tail * tail / (2.0 * variance * std::log(2.0)) + 97.0) < 1e-6);
        CHECK(dropping_bound(degree, clients, {bits, bits}) == half0 + half1);
        CHECK(error_bound(degree, clients, {bits, bits}) == noise_bound(degree, clients) + (half0 + half1));
        CHECK(half0 > previous0 && half1 > previous1);
        previous0 = half0;
        previous1 = half1;
      }
    }
  }
}

}  // namespace ckks_noise_tests
