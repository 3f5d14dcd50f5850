#include "ckks/flooding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/secure_memory.h"
#include "noise/gaussian.h"
#include "ring/modulus.h"

namespace shieldfl::ckks {

Seed flooding_seed_for(const SecretKey& key, const CiphertextView& total) {
  const Id content = digest(total.payload);
  const std::uint64_t clients = total.frame_ids.size();
  Seed seed;
  for (std::uint8_t half = 0; half < 2; ++half) {
    std::array<std::uint8_t, sizeof(Id) + sizeof clients + 1> input;
    std::copy(content.begin(), content.end(), input.begin());
    std::memcpy(input.data() + sizeof(Id), &clients, sizeof clients);
    input.back() = half;
    Id part = digest(input, key.flooding_seed().bytes);
    std::copy(part.begin(), part.end(), seed.bytes.begin() + half * static_cast<std::ptrdiff_t>(part.size()));
    secure_wipe(part.data(), part.size());
  }
  return seed;
}

void add_flooding(const ParameterFacts& facts, const Seed& seed, std::size_t block,
                  std::span<std::uint64_t> rows) {
  RandomStream stream(seed, block);
  const double deviation = std::ldexp(1.0, facts.log2_flooding);
  for (std::size_t i = 0; i < facts.degree; i += 2) {
    const noise::GaussianPair pair = noise::standard_gaussian_pair(stream);
    const std::int64_t draws[2] = {std::llrint(deviation * pair.first), std::llrint(deviation * pair.second)};
    for (std::size_t p = 0; p < facts.primes.size(); ++p) {
      const auto q = static_cast<std::int64_t>(facts.primes[p]);
      for (std::size_t k = 0; k < 2; ++k) {
        std::uint64_t& coefficient = rows[p * facts.degree + i + k];
        coefficient = ring::add(coefficient, ring::residue(draws[k] % q, facts.primes[p]), facts.primes[p]);
      }
    }
  }
}

}  // namespace shieldfl::ckks
