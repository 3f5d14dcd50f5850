#include "rlwe/moduli.h"

#include <seal/seal.h>

#include <bit>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/error.h"

namespace shieldfl::rlwe {
namespace {

std::vector<std::uint64_t> search_ntt_primes(std::size_t degree, const std::vector<int>& prime_bits) {
  try {
    std::vector<std::uint64_t> primes;
    for (const auto& modulus : seal::CoeffModulus::Create(degree, prime_bits)) {
      primes.push_back(modulus.value());
    }
    return primes;
  } catch (const std::logic_error&) {
    return {};
  }
}

}  // namespace

// Always the same primes for the same lengths, and each key and each frame asks for them again, where a
// search takes milliseconds. So each thread keeps them, for three degrees and primes of a few dozen lengths:
// with a lock that all share, a fork at the wrong moment would leave the child waiting for ever.
std::vector<std::uint64_t> ntt_primes(std::size_t degree, std::span<const int> prime_bits) {
  thread_local std::map<std::pair<std::size_t, std::vector<int>>, std::vector<std::uint64_t>> found;
  const std::pair wanted(degree, std::vector<int>(prime_bits.begin(), prime_bits.end()));
  const auto known = found.find(wanted);
  if (known != found.end()) return known->second;
  return found.emplace(wanted, search_ntt_primes(degree, wanted.second)).first->second;
}

void check_security(std::size_t degree, std::span<const std::uint64_t> primes) {
  const int most_bits = seal::CoeffModulus::MaxBitCount(degree, seal::sec_level_type::tc128);
  int bits = 0;
  for (const std::uint64_t prime : primes) bits += static_cast<int>(std::bit_width(prime));
  if (bits > most_bits) {
    throw Error(ErrorCode::kParameter,
                "a modulus of " + std::to_string(bits) + " bits is too long for a ring of degree " +
                    std::to_string(degree) + ": 128-bit security allows " + std::to_string(most_bits));
  }
}

}  // namespace shieldfl::rlwe
