#include "ckks/parameter_search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ckks/noise_bound.h"
#include "ring/modulus.h"

namespace shieldfl::ckks {
namespace {

using ring::UInt128;

struct RingChoice {
  std::uint32_t degree;
  std::size_t prime_count;
};
constexpr std::array<RingChoice, 2> kRings = {{{2048, 1}, {4096, 2}}};
constexpr int kMinPrimeBits = 20;  // below it, primes that are 1 modulo 2N run out

UInt128 product(const std::vector<std::uint64_t>& primes) {
  UInt128 result = 1;
  for (const std::uint64_t prime : primes) result *= prime;
  return result;
}

// The smallest total length of modulus above `least`; empty when it takes primes that are too long.
std::optional<std::vector<std::uint64_t>> smallest_modulus_above(UInt128 least, RingChoice ring) {
  const auto count = static_cast<int>(ring.prime_count);
  for (int bits = count * kMinPrimeBits; bits <= count * kMaxPrimeBits; ++bits) {
    if (bits < 127 && (static_cast<UInt128>(1) << bits) <= least) continue;
    std::vector<int> lengths(ring.prime_count, bits / count);
    lengths.back() += bits % count;
    const auto primes = ntt_primes(ring.degree, lengths);
    if (primes.size() == ring.prime_count && product(primes) > least) return primes;
  }
  return std::nullopt;
}

std::optional<ParameterFacts> search_exact(ParameterFacts facts, RingChoice ring) {
  const double bound = noise_bound(ring.degree, facts.max_clients);
  facts.log2_scale = static_cast<std::uint8_t>(std::ceil(std::log2(2.0 * bound)));
  const UInt128 max_sum = static_cast<UInt128>(facts.max_magnitude()) * facts.max_clients;
  const unsigned room = static_cast<unsigned>(ring.prime_count) * static_cast<unsigned>(kMaxPrimeBits);

  std::optional<ParameterFacts> best;
  UInt128 plaintext = 0;  // the largest magnitude of the packed integer
  // Sums fill a quarter of their field at least: the packed integer may be shorter than its fields by two
  // bits.
  for (unsigned values = 1; values * facts.field_bits() + facts.log2_scale <= room + 1; ++values) {
    plaintext += max_sum << ((values - 1) * facts.field_bits());
    // |scale * plaintext + noise| < q / 2, with |noise| < scale / 2
    const UInt128 least = (2 * plaintext + 1) << facts.log2_scale;
    const auto primes = smallest_modulus_above(least, ring);
    if (!primes) break;
    facts.values_per_coefficient = static_cast<std::uint8_t>(values);
    facts.primes = *primes;
    best = facts;
  }
  return best;
}

std::optional<ParameterFacts> search_slots(ParameterFacts facts, RingChoice ring) {
  const double bound = noise_bound(ring.degree, facts.max_clients);
  const auto degree = static_cast<double>(ring.degree);
  // Flooding N coefficients with N(0, f^2) hides noise within the bound B up to a Kullback-Leibler divergence
  // of N (2 B)^2 / (2 f^2) for each ciphertext; f = 2 B sqrt(N / 2) 2^20 brings it to 2^-40.
  facts.log2_flooding =
      static_cast<std::uint8_t>(std::ceil(std::log2(2.0 * bound * std::sqrt(degree / 2.0)) + 20.0));
  // A slot is a sum of N coefficients times roots of unity: noise of standard deviation f sqrt(N) at most.
  // Eight standard deviations, half a unit in the last place: 4 bits.
  facts.log2_scale = static_cast<std::uint8_t>(facts.log2_flooding + std::ceil(std::log2(degree) / 2.0) + 4 +
                                               facts.fraction_bits);
  const int integer_bits = static_cast<int>(facts.field_bits()) - static_cast<int>(facts.fraction_bits);
  // A coefficient is at most the largest slot times the scale; one bit for the sign, one for flooding.
  const int modulus_bits = facts.log2_scale + std::max(integer_bits, 0) + 2;
  if (modulus_bits > static_cast<int>(ring.prime_count) * kMaxPrimeBits) return std::nullopt;
  const auto primes = smallest_modulus_above(static_cast<UInt128>(1) << modulus_bits, ring);
  if (!primes) return std::nullopt;
  facts.primes = *primes;
  return facts;
}

}  // namespace

std::optional<ParameterFacts> search_parameters(const ParameterRequest& request) {
  for (const RingChoice ring : kRings) {
    if (request.ring_degree && *request.ring_degree != ring.degree) continue;
    ParameterFacts facts;
    facts.packing = request.packing;
    facts.value_bits = static_cast<std::uint8_t>(request.value_bits);
    facts.fraction_bits = static_cast<std::uint8_t>(request.fraction_bits);
    facts.max_clients = request.max_clients;
    facts.degree = ring.degree;
    const auto found =
        request.packing == Packing::kExact ? search_exact(facts, ring) : search_slots(facts, ring);
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace shieldfl::ckks
