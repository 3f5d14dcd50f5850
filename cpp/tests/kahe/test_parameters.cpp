#include <bit>
#include <cmath>
#include <vector>

#include "enrolled/sum_key_head.h"
#include "kahe/frame_secret.h"
#include "kahe/parameter_search.h"
#include "kahe/parameters.h"
#include "rlwe/moduli.h"
#include "tests/check.h"

namespace kahe_parameters_tests {

using namespace shieldfl;
using namespace shieldfl::kahe;

TEST(ciphertexts_are_as_short_as_the_design_says) {
  struct Row {
    ParameterRequest request;
    double most_bytes;
  };
  // Bytes a value, rounded up.
  const std::vector<Row> rows = {
      {{64, 24, 20, 2048}, 4.51},   {{64, 24, 20, 4096}, 4.05},   {{64, 24, 20, 8192}, 3.885},
      {{32, 16, 10, 2048}, 3.38},   {{32, 16, 10, 4096}, 2.82},   {{32, 16, 10, 8192}, 2.72},
      {{1000, 16, 10, 2048}, 4.26}, {{1000, 16, 10, 4096}, 3.59}, {{1000, 16, 10, 8192}, 3.40}};
  for (const Row& row : rows) {
    const auto parameters = Parameters::derive(row.request);
    CHECK(parameters->bytes_per_value() <= row.most_bytes);
    CHECK(parameters->failure_bits() >= kLeastFailureBits);
  }
}

TEST(parameters_have_room_for_every_honest_sum) {
  for (const std::uint32_t degree : {2048U, 4096U, 8192U}) {
    for (const std::uint32_t clients : {1U, 2U, 3U, 64U, 1000U, 1U << 20}) {
      for (const unsigned bits : {2U, 8U, 24U, 33U}) {
        if (bits + static_cast<unsigned>(std::bit_width(clients - 1)) > scheme::kMaxFieldBits) continue;
        std::shared_ptr<const Parameters> parameters;
        try {
          parameters = Parameters::derive({clients, bits, 0, degree});
        } catch (const Error& error) {
          CHECK(error.code() == ErrorCode::kParameter && degree == 2048);
          continue;
        }
        const ParameterFacts& facts = parameters->facts();
        rlwe::check_security(degree, facts.primes);
        long double modulus = 0;
        for (std::size_t i = 0; i < facts.primes.size(); ++i) {
          // What prepare_secret() asks of sums of secrets, whatever the number of authorities.
          CHECK(std::uint64_t{kMaxSample} * enrolled::kMaxAuthorities * clients < facts.primes[i]);
          modulus += std::log2(static_cast<long double>(facts.primes[i]));
          // What DigitBasis asks of an order of primes.
          for (std::size_t j = i; j < facts.primes.size(); ++j) CHECK(facts.primes[i] < 2 * facts.primes[j]);
        }
        const long double message = facts.log2_scale +
                                    (facts.values_per_coefficient - 1.0L) * facts.field_bits() +
                                    std::log2(static_cast<long double>(facts.fixed_point().max_magnitude()) *
                                              static_cast<long double>(clients));
        CHECK(modulus > message + 1);
        CHECK(facts.dropped_bits < facts.log2_scale);
        CHECK(failure_bits(clients, facts.log2_scale, facts.dropped_bits) >= kLeastFailureBits);
        CHECK(Parameters::from_facts(facts)->id() == parameters->id());
      }
    }
  }
}

TEST(sums_of_fewer_bits_make_shorter_ciphertexts) {
  for (const std::uint32_t degree : {2048U, 4096U, 8192U}) {
    double shorter = 0;
    for (const unsigned sum_bits : {16U, 18U, 21U, 23U}) {
      const auto parameters = Parameters::derive({101, 16, 0, degree, sum_bits});
      const ParameterFacts& facts = parameters->facts();
      CHECK(facts.field_bits() == sum_bits && facts.guard_bits() == sum_bits - 16);
      CHECK(facts.holds_any_sum() == (sum_bits == 23));
      CHECK(parameters->bytes_per_value() > shorter);
      shorter = parameters->bytes_per_value();
      CHECK(Parameters::from_facts(facts)->id() == parameters->id());
      CHECK((parameters->id() == Parameters::derive({101, 16, 0, degree})->id()) == (sum_bits == 23));
    }
    // Bits of values alone decide nothing: what is sent of each has room in its sum.
    CHECK(Parameters::derive({101, 14, 0, degree, 18})->bytes_per_value() ==
          Parameters::derive({101, 16, 0, degree, 18})->bytes_per_value());
  }
  // Values that no sum of all would leave room for.
  CHECK(Parameters::derive({1U << 20, 40, 0, 8192, 54})->facts().field_bits() == 54);
}

TEST(what_cannot_be_is_refused) {
  for (const ParameterRequest& request : {ParameterRequest{0, 24, 20, {}},
                                          {64, 1, 0, {}},
                                          {64, 41, 0, {}},
                                          {64, 24, 53, {}},
                                          {64, 24, 20, 1024},
                                          {64, 24, 20, 16384},
                                          {(1U << 20) + 1, 24, 20, {}},
                                          {1U << 20, 40, 0, {}},
                                          {64, 24, 20, {}, 23},
                                          {64, 24, 20, {}, 31},
                                          {64, 24, 20, {}, ~0U},
                                          {64, 1, 0, {}, 1},
                                          {1U << 20, 40, 0, 8192, 55}}) {
    CHECK_THROWS(Parameters::derive(request), ErrorCode::kParameter);
  }
  ParameterFacts facts = Parameters::derive({})->facts();
  facts.dropped_bits = static_cast<std::uint8_t>(facts.dropped_bits + 1);
  CHECK_THROWS(Parameters::from_facts(facts), ErrorCode::kParameter);
}

}  // namespace kahe_parameters_tests
