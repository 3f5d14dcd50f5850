#include <seal/seal.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "ckks/noise_bound.h"
#include "ckks/parameter_search.h"
#include "ckks/parameters.h"
#include "ring/modulus.h"
#include "rlwe/packed_digits.h"
#include "tests/check.h"

namespace ckks_parameter_search_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;
using ring::UInt128;
using rlwe::kMaxDroppedBits;
using rlwe::kMaxPrimeBits;
using rlwe::kMinPrimeBits;

namespace {

UInt128 product(const std::vector<std::uint64_t>& primes) {
  UInt128 result = 1;
  for (const std::uint64_t prime : primes) result *= prime;
  return result;
}

// 2 * scale * plaintext + scale: what the modulus must exceed so that `values` fields and noise below half
// the scale do not wrap around.
UInt128 needed_modulus(const ParameterFacts& facts, unsigned values) {
  UInt128 plaintext = 0;
  for (unsigned j = 0; j < values; ++j) {
    plaintext += static_cast<UInt128>(facts.max_magnitude()) * facts.max_clients << (j * facts.field_bits());
  }
  return (2 * plaintext + 1) << facts.log2_scale;
}

unsigned modulus_bits(const ParameterFacts& facts) {
  unsigned bits = 0;
  for (const std::uint64_t prime : facts.primes) bits += static_cast<unsigned>(std::bit_width(prime));
  return bits;
}

// The largest modulus of a total length, split over the primes as evenly as can be; 0 when there is none.
UInt128 largest_modulus(std::size_t degree, std::size_t prime_count, unsigned bits) {
  static std::map<std::tuple<std::size_t, std::size_t, unsigned>, UInt128> known;
  const auto [entry, fresh] = known.try_emplace({degree, prime_count, bits}, UInt128{0});
  if (!fresh) return entry->second;
  std::vector<int> lengths(prime_count, static_cast<int>(bits / prime_count));
  lengths.back() += static_cast<int>(bits % prime_count);
  if (lengths.back() > kMaxPrimeBits || lengths.front() < kMinPrimeBits) return 0;
  try {
    UInt128 result = 1;
    for (const auto& modulus : seal::CoeffModulus::Create(degree, lengths)) result *= modulus.value();
    entry->second = result;
  } catch (const std::logic_error&) {  // no primes of this length
  }
  return entry->second;
}

// The length of the shortest modulus above `least`; empty when all are below.
std::optional<unsigned> shortest_modulus_bits(const ParameterFacts& facts, UInt128 least) {
  const std::size_t count = facts.primes.size();
  for (auto bits = static_cast<unsigned>(count) * kMinPrimeBits; bits <= count * kMaxPrimeBits; ++bits) {
    if (largest_modulus(facts.degree, count, bits) > least) return bits;
  }
  return std::nullopt;
}

// The most bits of both halves together that may be dropped with an error of at most `limit`.
unsigned most_dropped(const ParameterFacts& facts, double limit) {
  unsigned most = 0;
  for (unsigned half0 = 0; half0 <= kMaxDroppedBits; ++half0) {
    for (unsigned half1 = 0; half1 <= kMaxDroppedBits; ++half1) {
      if (error_bound(facts.degree, facts.max_clients, {half0, half1}) <= limit)
        most = std::max(most, half0 + half1);
    }
  }
  return most;
}

// Neither half can lose one bit more, and no other way to share the bits loses more of them.
void check_dropped(const ParameterFacts& facts, double limit) {
  const DroppedBits dropped = facts.dropped_bits();
  const auto error = [&](DroppedBits bits) { return error_bound(facts.degree, facts.max_clients, bits); };
  CHECK(error(dropped) <= limit);
  CHECK(dropped.half0 == kMaxDroppedBits || error({dropped.half0 + 1, dropped.half1}) > limit);
  CHECK(dropped.half1 == kMaxDroppedBits || error({dropped.half0, dropped.half1 + 1}) > limit);
  CHECK(dropped.half0 + dropped.half1 == most_dropped(facts, limit));
}

constexpr unsigned kMoreScaleBits = 6;  // than the least scale, which the search goes up to

void check_exact(const ParameterFacts& facts) {
  CHECK(facts.values_per_coefficient >= 1 && facts.log2_flooding == 0);
  check_dropped(facts, std::ldexp(0.5, facts.log2_scale));
  const double least_error = noise_bound(facts.degree, facts.max_clients);
  const auto least_scale = static_cast<unsigned>(std::ceil(std::log2(2.0 * least_error)));
  CHECK(facts.log2_scale >= least_scale && facts.log2_scale <= least_scale + kMoreScaleBits);
  CHECK(product(facts.primes) > needed_modulus(facts, facts.values_per_coefficient));

  // No scale in reach makes for a shorter batch, and none below this one for a batch that is as short.
  const std::size_t bytes = facts.format(FrameKind::kCkksBatch).bytes();
  const unsigned dropped = facts.dropped_bits0 + unsigned{facts.dropped_bits1};
  CHECK(bytes == facts.degree * (2 * modulus_bits(facts) - dropped) / 8);
  const auto field_bits = facts.field_bits() * facts.values_per_coefficient;
  for (unsigned scale = least_scale; scale <= least_scale + kMoreScaleBits && field_bits + scale < 120;
       ++scale) {
    ParameterFacts other = facts;
    other.log2_scale = static_cast<std::uint8_t>(scale);
    const auto bits = shortest_modulus_bits(facts, needed_modulus(other, facts.values_per_coefficient));
    if (!bits) continue;
    const std::size_t other_bytes =
        facts.degree * (2 * *bits - most_dropped(facts, std::ldexp(0.5, static_cast<int>(scale)))) / 8;
    CHECK(scale < facts.log2_scale ? other_bytes > bytes : other_bytes >= bytes);
    if (scale == facts.log2_scale) CHECK(other_bytes == bytes);
  }

  // This ring's largest modulus has no room for a value more, whatever the scale.
  const auto room = static_cast<unsigned>(facts.primes.size()) * static_cast<unsigned>(kMaxPrimeBits);
  const unsigned one_more = facts.values_per_coefficient + 1U;
  if (one_more * facts.field_bits() + least_scale < 120) {  // else it is out of the question, and overflows
    ParameterFacts least = facts;
    least.log2_scale = static_cast<std::uint8_t>(least_scale);
    CHECK(largest_modulus(facts.degree, facts.primes.size(), room) <= needed_modulus(least, one_more));
  }
}

void check_any(const Parameters& parameters, const ParameterRequest& request) {
  const ParameterFacts& facts = parameters.facts();
  CHECK(facts.max_clients == request.max_clients && facts.value_bits == request.value_bits);
  CHECK(facts.fraction_bits == request.fraction_bits && facts.packing == request.packing);
  CHECK((std::uint64_t{1} << facts.guard_bits()) >= facts.max_clients);
  CHECK(facts.guard_bits() == 0 || (std::uint64_t{1} << (facts.guard_bits() - 1)) < facts.max_clients);
  CHECK(static_cast<UInt128>(facts.max_magnitude()) * facts.max_clients < static_cast<UInt128>(1) << 53);
  const std::set<std::uint64_t> distinct(facts.primes.begin(), facts.primes.end());
  CHECK(distinct.size() == facts.primes.size());
  for (const std::uint64_t prime : facts.primes) {
    CHECK(seal::Modulus(prime).is_prime() && prime % (2 * facts.degree) == 1);
    CHECK(std::bit_width(prime) <= kMaxPrimeBits);
  }
  seal::EncryptionParameters seal_parameters(seal::scheme_type::ckks);
  seal_parameters.set_poly_modulus_degree(facts.degree);
  seal_parameters.set_coeff_modulus({facts.primes.begin(), facts.primes.end()});
  CHECK(seal::SEALContext(seal_parameters, true, seal::sec_level_type::tc128).parameters_set());
  CHECK(parameters.id() == facts.id());
  CHECK(Parameters::from_facts(facts)->facts() == facts);
}

}  // namespace

TEST(exact_parameters_have_room_for_every_sum_and_no_more) {
  std::size_t derived = 0;
  for (const std::uint32_t max_clients : {1U, 2U, 3U, 20U, 33U, 64U, 1000U, 1U << 14, 1U << 20}) {
    for (const unsigned value_bits : {2U, 3U, 8U, 16U, 24U, 32U, 40U}) {
      for (const auto degree : {std::optional<std::uint32_t>{}, std::optional<std::uint32_t>{4096}}) {
        const ParameterRequest request{Packing::kExact, max_clients, value_bits, value_bits / 2, degree};
        std::shared_ptr<const Parameters> parameters;
        try {
          parameters = Parameters::derive(request);
        } catch (const Error& error) {
          // Only sums that do not fit a double are refused: the larger ring has room for all others.
          CHECK(error.code() == ErrorCode::kParameter);
          CHECK(value_bits + static_cast<unsigned>(std::bit_width(max_clients - 1)) > scheme::kMaxFieldBits);
          continue;
        }
        ++derived;
        check_any(*parameters, request);
        check_exact(parameters->facts());
        // The smaller ring is taken where it has room.
        if (!degree && parameters->facts().degree == 4096) {
          ParameterRequest smaller = request;
          smaller.ring_degree = 2048;
          CHECK_THROWS(Parameters::derive(smaller), ErrorCode::kParameter);
        }
      }
    }
  }
  CHECK(derived > 90);
}

TEST(slot_parameters_have_room_for_sums_and_flooding) {
  for (const std::uint32_t max_clients : {1U, 2U, 64U, 1000U}) {
    for (const unsigned value_bits : {8U, 16U, 24U}) {
      for (const unsigned fraction_bits : {0U, 8U, 20U, 24U}) {
        const ParameterRequest request{Packing::kSlots, max_clients, value_bits, fraction_bits, {}};
        const auto parameters = Parameters::derive(request);
        check_any(*parameters, request);
        const ParameterFacts& facts = parameters->facts();
        // Dropping at most doubles what noise there is, and flooding hides both.
        const double bound = 2.0 * noise_bound(facts.degree, max_clients);
        check_dropped(facts, bound);
        CHECK(parameters->error_bound() <= bound);
        const auto degree = static_cast<double>(facts.degree);
        const double flooding = std::ldexp(1.0, facts.log2_flooding);
        // The divergence N (2 B)^2 / (2 f^2) that the flooding must bring below 2^-40, and half of it does
        // not.
        const double divergence = degree * 4.0 * bound * bound / (2.0 * flooding * flooding);
        CHECK(divergence <= 0x1p-40 && 4.0 * divergence > 0x1p-40);
        // Eight standard deviations of a slot's noise within half a unit of the last place.
        CHECK(8.0 * flooding * std::sqrt(degree) <=
              std::ldexp(0.5, facts.log2_scale - static_cast<int>(fraction_bits)));
        const double largest = std::ldexp(static_cast<double>(facts.max_magnitude()) * max_clients,
                                          facts.log2_scale - static_cast<int>(fraction_bits));
        CHECK(largest + bound + 16.0 * flooding < static_cast<double>(product(facts.primes)) / 2.0);
      }
    }
  }
}

}  // namespace ckks_parameter_search_tests
