#include "kahe/parameter_search.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "ring/sampler.h"
#include "rlwe/moduli.h"
#include "rlwe/packed_digits.h"
#include "rlwe/wide.h"

namespace shieldfl::kahe {
namespace {

using rlwe::add;
using rlwe::Wide;

// Of 128-bit security (rlwe::check_security looks): as many primes as the ring's modulus may be long.
std::size_t prime_count(std::uint32_t degree) {
  return degree / 2048;
}

// Lengths that differ by one at most, the shorter ones first.
std::vector<int> prime_lengths(unsigned bits, std::size_t count) {
  std::vector<int> lengths(count);
  for (std::size_t i = 0; i < count; ++i) lengths[i] = static_cast<int>((bits + i) / count);
  return lengths;
}

// Primes whose product is `bits` bits long and above `least`; empty when there are none.
std::vector<std::uint64_t> primes_above(const Wide& least, unsigned bits, std::uint32_t degree) {
  const std::vector<int> lengths = prime_lengths(bits, prime_count(degree));
  if (lengths.front() < rlwe::kMinPrimeBits || lengths.back() > rlwe::kMaxPrimeBits) return {};
  auto primes = rlwe::ntt_primes(degree, lengths);
  if (primes.empty() || rlwe::sign(add(least, rlwe::product_of(primes), rlwe::kNegate)) == 0) return {};
  return primes;
}

// The shortest modulus that holds sums of these fields above this scale.
std::vector<std::uint64_t> shortest_modulus(const ParameterFacts& facts) {
  const std::uint64_t max_sum = scheme::max_sum(facts.fixed_point(), facts.field_bits(), facts.max_clients);
  Wide message{};  // the largest magnitude, times the scale
  for (unsigned field = 0; field < facts.values_per_coefficient; ++field) {
    const unsigned shift = facts.log2_scale + field * facts.field_bits();
    message = add(message, rlwe::multiply_add(rlwe::power_of_two(shift), max_sum, 0));
  }
  // |message + error| < q / 2, with |error| < scale / 2
  const Wide least = add(add(message, message), rlwe::power_of_two(facts.log2_scale));
  const unsigned shortest = facts.log2_scale + facts.values_per_coefficient * facts.field_bits() - 2;
  const auto longest = static_cast<unsigned>(prime_count(facts.degree)) * rlwe::kMaxPrimeBits;
  for (unsigned bits = shortest; bits <= longest; ++bits) {
    auto primes = primes_above(least, bits, facts.degree);
    if (!primes.empty()) return primes;
  }
  return {};
}

unsigned most_dropped(std::uint64_t clients, unsigned log2_scale) {
  unsigned dropped = 0;
  while (dropped < rlwe::kMaxDroppedBits &&
         failure_bits(clients, log2_scale, dropped + 1) >= kLeastFailureBits) {
    ++dropped;
  }
  return dropped;
}

// Each further bit of scale lengthens the modulus by a bit, and lets about one more be dropped.
constexpr unsigned kScaleBitsTried = 6;

// Bits on the wire for a value.
double wire_bits(const ParameterFacts& facts) {
  return 8.0 * static_cast<double>(facts.format(FrameKind::kKaheBatch).bytes()) /
         static_cast<double>(facts.values_per_block());
}

}  // namespace

double failure_bits(std::uint64_t clients, unsigned log2_scale, unsigned dropped_bits) {
  const double dropped_variance = (std::ldexp(1.0, 2 * static_cast<int>(dropped_bits)) - 1.0) / 12.0;
  const double variance =
      static_cast<double>(clients) * (kBinomials * ring::kErrorVariance + dropped_variance);
  const double margin = std::ldexp(0.5, static_cast<int>(log2_scale)) - (dropped_bits == 0 ? 0.0 : 0.5);
  return margin * margin / (2.0 * variance) / std::numbers::ln2 - 1.0;
}

std::optional<ParameterFacts> search_parameters(const ParameterRequest& request,
                                                std::uint8_t omitted_guard_bits, std::uint32_t degree) {
  ParameterFacts facts;
  facts.value_bits = static_cast<std::uint8_t>(request.value_bits);
  facts.fraction_bits = static_cast<std::uint8_t>(request.fraction_bits);
  facts.max_clients = request.max_clients;
  facts.omitted_guard_bits = omitted_guard_bits;
  facts.degree = degree;
  unsigned least_scale = 1;
  while (failure_bits(facts.max_clients, least_scale, 0) < kLeastFailureBits) ++least_scale;

  const auto room = static_cast<unsigned>(prime_count(degree)) * rlwe::kMaxPrimeBits;
  std::optional<ParameterFacts> best;
  for (unsigned fields = 1; fields * facts.field_bits() < room; ++fields) {
    facts.values_per_coefficient = static_cast<std::uint8_t>(fields);
    for (unsigned scale = least_scale; scale <= least_scale + kScaleBitsTried; ++scale) {
      facts.log2_scale = static_cast<std::uint8_t>(scale);
      facts.dropped_bits = static_cast<std::uint8_t>(most_dropped(facts.max_clients, scale));
      facts.primes = shortest_modulus(facts);
      if (facts.primes.empty()) break;
      if (!best || wire_bits(facts) < wire_bits(*best)) best = facts;
    }
  }
  return best;
}

}  // namespace shieldfl::kahe
