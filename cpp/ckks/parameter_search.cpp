#include "ckks/parameter_search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ckks/noise_bound.h"
#include "ring/modulus.h"
#include "rlwe/moduli.h"
#include "rlwe/packed_digits.h"

namespace shieldfl::ckks {
namespace {

using ring::UInt128;
using rlwe::kMaxDroppedBits;
using rlwe::kMaxPrimeBits;
using rlwe::kMinPrimeBits;

struct RingChoice {
  std::uint32_t degree;
  std::size_t prime_count;
};
constexpr std::array<RingChoice, 2> kRings = {{{2048, 1}, {4096, 2}}};

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
    const auto primes = rlwe::ntt_primes(ring.degree, lengths);
    if (primes.size() == ring.prime_count && product(primes) > least) return primes;
  }
  return std::nullopt;
}

// The most bits to drop while the error stays within `limit`; empty when it does not even without dropping.
// Of equal sums the one with fewer bits of the second half, whose errors the secret multiplies.
std::optional<DroppedBits> most_dropped(RingChoice ring, std::uint64_t clients, double limit) {
  std::optional<DroppedBits> most;
  for (unsigned half1 = 0; half1 <= kMaxDroppedBits; ++half1) {
    for (unsigned half0 = 0; half0 <= kMaxDroppedBits; ++half0) {
      const DroppedBits dropped{half0, half1};
      if (error_bound(ring.degree, clients, dropped) > limit) break;
      if (!most || half0 + half1 > most->half0 + most->half1) most = dropped;
    }
  }
  return most;
}

// Each further bit of scale lengthens both halves by a bit, and lets more bits be dropped: it pays for the
// first few. So every scale up to this many bits above the least one is tried.
constexpr unsigned kScaleBitsTried = 6;

// The shortest ciphertext with `values` of these fields in each coefficient; empty when there is no room.
std::optional<ParameterFacts> search_exact_with(ParameterFacts facts, RingChoice ring, unsigned values) {
  const UInt128 max_sum = static_cast<UInt128>(facts.max_magnitude()) * facts.max_clients;
  UInt128 plaintext = 0;  // the largest magnitude of the packed integer
  for (unsigned j = 0; j < values; ++j) plaintext += max_sum << (j * facts.field_bits());
  facts.values_per_coefficient = static_cast<std::uint8_t>(values);

  const double least_error = error_bound(ring.degree, facts.max_clients, {});
  const auto least_scale = static_cast<unsigned>(std::ceil(std::log2(2.0 * least_error)));
  const unsigned room = static_cast<unsigned>(ring.prime_count) * static_cast<unsigned>(kMaxPrimeBits);
  std::optional<ParameterFacts> best;
  for (unsigned scale = least_scale; scale <= least_scale + kScaleBitsTried; ++scale) {
    // 2 plaintext + 1 is above 2^(values * field_bits - 2): with less room than that no prime can do.
    if (values * facts.field_bits() + scale > room + 1) break;
    // |scale * plaintext + error| < q / 2, with |error| < scale / 2
    const auto primes = smallest_modulus_above((2 * plaintext + 1) << scale, ring);
    const auto dropped = most_dropped(ring, facts.max_clients, std::ldexp(0.5, static_cast<int>(scale)));
    if (!primes || !dropped) break;
    facts.log2_scale = static_cast<std::uint8_t>(scale);
    facts.dropped_bits0 = static_cast<std::uint8_t>(dropped->half0);
    facts.dropped_bits1 = static_cast<std::uint8_t>(dropped->half1);
    facts.primes = *primes;
    if (!best || facts.format(FrameKind::kCkksBatch).bytes() < best->format(FrameKind::kCkksBatch).bytes()) {
      best = facts;
    }
  }
  return best;
}

std::optional<ParameterFacts> search_exact(const ParameterFacts& facts, RingChoice ring) {
  std::optional<ParameterFacts> best;
  for (unsigned values = 1;; ++values) {
    const auto found = search_exact_with(facts, ring, values);
    if (!found) return best;
    best = found;
  }
}

std::optional<ParameterFacts> search_slots(ParameterFacts facts, RingChoice ring) {
  const double bound = noise_bound(ring.degree, facts.max_clients);
  // What is dropped may add as much again as there is noise: flooding is far above both.
  const auto dropped = most_dropped(ring, facts.max_clients, 2.0 * bound);
  facts.dropped_bits0 = static_cast<std::uint8_t>(dropped->half0);
  facts.dropped_bits1 = static_cast<std::uint8_t>(dropped->half1);
  const auto degree = static_cast<double>(ring.degree);
  // Flooding N coefficients with N(0, f^2) hides an error within the bound E up to a Kullback-Leibler
  // divergence of N (2 E)^2 / (2 f^2) for each ciphertext; f = 2 E sqrt(N / 2) 2^20 brings it to 2^-40.
  const double error = 2.0 * bound;
  facts.log2_flooding =
      static_cast<std::uint8_t>(std::ceil(std::log2(2.0 * error * std::sqrt(degree / 2.0)) + 20.0));
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
