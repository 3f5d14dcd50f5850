// Exactness where it is hardest: the most clients, the largest values, the largest errors that are rounded
// away.
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/check.h"
#include "tests/ckks/ciphertext_digits.h"
#include "tests/ckks/ckks_cases.h"

namespace ckks_capacity_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using ring::Int128;
using tests::Frame;
using tests::key_pair;
using tests::Values;

namespace {

enum class Extreme { kLargest, kSmallest, kEither };

Values extreme_values(Extreme kind, const Parameters& parameters, std::mt19937_64& generator) {
  Values values(parameters.facts().values_per_block());
  for (double& value : values) {
    const bool largest = kind == Extreme::kLargest || (kind == Extreme::kEither && generator() % 2 == 0);
    value = largest ? parameters.value_limit() : -parameters.value_limit();
  }
  return values;
}

// All clients at their limits, which they reach in the same direction or each on its own.
void check_full(const ParameterRequest& request, std::mt19937_64& generator) {
  const KeyPair& keys = key_pair(request);
  InsecureTestRandom seeds(generator());
  for (const Extreme kind : {Extreme::kLargest, Extreme::kSmallest, Extreme::kEither}) {
    Aggregator aggregator(keys.public_key, {}, 1);
    Values expected(tests::facts_of(keys).values_per_block(), 0.0);
    for (std::uint32_t client = 0; client < request.max_clients; ++client) {
      const Values values = extreme_values(kind, *keys.public_key->parameters(), generator);
      for (std::size_t i = 0; i < values.size(); ++i) expected[i] += values[i];
      aggregator.add(tests::encrypt(keys, values, seeds));
    }
    CHECK(tests::open(keys, tests::total_of(aggregator)).values == expected);
  }
}

// One request for each ring and number of values in a coefficient.
std::map<std::pair<std::uint32_t, unsigned>, ParameterRequest> requests_by_density() {
  std::map<std::pair<std::uint32_t, unsigned>, ParameterRequest> requests;
  for (const std::uint32_t degree : {2048U, 4096U}) {
    for (const std::uint32_t max_clients : {1U, 2U, 3U, 4U, 9U}) {
      for (unsigned value_bits = 2; value_bits <= 40; ++value_bits) {
        const ParameterRequest request{Packing::kExact, max_clients, value_bits, value_bits / 2, degree};
        try {
          const auto parameters = Parameters::derive(request);
          requests.emplace(std::pair{degree, parameters->facts().values_per_coefficient}, request);
        } catch (const Error& error) {
          CHECK(error.code() == ErrorCode::kParameter);  // the small ring has no room for the longest values
        }
      }
    }
  }
  return requests;
}

// A batch of one ciphertext whose first half is these numbers modulo q0 q1, and whose second half is zero.
Frame batch_of_numbers(const KeyPair& keys, const std::vector<ring::UInt128>& numbers, SeedSource& seeds) {
  const ParameterFacts& facts = tests::facts_of(keys);
  std::vector<std::uint64_t> digits(facts.block_words(), 0);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    digits[i] = static_cast<std::uint64_t>(numbers[i] % facts.primes[0]);
    if (facts.primes.size() == 2) {
      digits[facts.degree + i] = static_cast<std::uint64_t>(numbers[i] / facts.primes[0]);
    }
  }
  const Id id = random_id(seeds);
  const Layout layout{facts.id(),
                      keys.public_key->id(),
                      0,
                      scheme::mask_id(facts.values_per_block(), nullptr),
                      facts.values_per_block(),
                      false};
  FrameWriter writer = begin_frame(FrameKind::kCkksBatch, facts, layout, {&id, 1});
  facts.format(FrameKind::kCkksBatch)
      .pack(digits, writer.reserve(facts.format(FrameKind::kCkksBatch).bytes()));
  return writer.finish();
}

}  // namespace

TEST(every_number_of_values_in_a_coefficient_holds_the_largest_sums) {
  std::mt19937_64 generator(181);
  const auto requests = requests_by_density();
  CHECK(requests.size() > 25);
  CHECK(requests.contains({2048, 1}) && requests.contains({4096, 2}) && requests.contains({4096, 21}));
  for (const auto& [density, request] : requests) check_full(request, generator);
}

TEST(many_clients_at_their_limits_sum_exactly) {
  std::mt19937_64 generator(182);
  for (const ParameterRequest& request : {ParameterRequest{Packing::kExact, 64, 24, 20, {}},
                                          {Packing::kExact, 100, 8, 4, 4096},
                                          {Packing::kExact, 65, 16, 12, 2048},
                                          {Packing::kExact, 1000, 2, 0, 2048}}) {
    check_full(request, generator);
  }
}

TEST(errors_up_to_half_the_scale_are_rounded_away) {
  // Under a secret key of zeros c0 is the message and its error, so that errors can be chosen. Of what is
  // sent the dropped bits are all zero, or all one, in every coefficient of every client.
  InsecureTestRandom seeds(183);
  for (const ParameterRequest& request :
       {ParameterRequest{Packing::kExact, 4, 24, 20, 2048}, {Packing::kExact, 6, 20, 12, 4096}}) {
    const ParametersPointer& parameters = key_pair(request).public_key->parameters();
    const ParameterFacts& facts = parameters->facts();
    const std::vector<std::uint64_t> zeros(facts.block_words() / 2, 0);
    const auto public_key = std::make_shared<const PublicKey>(parameters, zeros, zeros);
    const KeyPair keys = {public_key, std::make_shared<const SecretKey>(
                                          parameters, SecretVector<std::uint64_t>(zeros.begin(), zeros.end()),
                                          public_key->id(), seeds.next())};
    const Int128 modulus = static_cast<Int128>(tests::modulus_of(facts));
    const Int128 step = Int128{1} << facts.dropped_bits0;
    const Int128 half_scale = Int128{1} << (facts.log2_scale - 1);
    CHECK(facts.dropped_bits0 >= 2 && facts.max_clients % 2 == 0);
    // What opens: the sum of the middles of what was dropped, less the correction; so the error is known.
    const auto opened_value = [&](Int128 error_in_steps, bool ones) {
      Aggregator aggregator(keys.public_key, {}, 1);
      for (std::uint32_t client = 0; client < facts.max_clients; ++client) {
        const Int128 message = Int128{client + 1} << facts.log2_scale;
        Int128 number = message + (client == 0 ? error_in_steps * step : 0);
        if (number < 0) number += modulus;
        // The low bits are those of the lower digit, which is the number itself while that is below q0.
        CHECK(number < static_cast<Int128>(facts.primes[0]) && number % step == 0);
        if (ones) number += step - 1;
        aggregator.add(batch_of_numbers(
            keys, std::vector<ring::UInt128>(facts.degree, static_cast<ring::UInt128>(number)), seeds));
      }
      const OpenedSums opened = tests::open(keys, tests::total_of(aggregator));
      for (std::size_t i = 0; i < facts.degree; ++i) CHECK(opened.values[i] == opened.values[0]);
      return tests::fixed_point(facts, opened.values[0]);
    };
    const auto clients = static_cast<std::int64_t>(facts.max_clients);
    const std::int64_t right = clients * (clients + 1) / 2;
    for (const bool ones : {false, true}) {
      // The middles are half a step above each, whatever the dropped bits were.
      const Int128 most = (half_scale - Int128{clients} * step / 2) / step;
      for (const Int128 steps : {Int128{0}, Int128{1}, most / 2, most})
        CHECK(opened_value(steps, ones) == right);
      CHECK(opened_value(most + 1, ones) == right + 1);
      const Int128 least = -(half_scale + Int128{clients} * step / 2) / step + 1;
      for (const Int128 steps : {Int128{-1}, least / 2, least}) CHECK(opened_value(steps, ones) == right);
      CHECK(opened_value(least - 1, ones) == right - 1);
    }
  }
}

}  // namespace ckks_capacity_tests
