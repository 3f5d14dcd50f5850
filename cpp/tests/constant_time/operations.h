// Operations on secrets, for the two checks that neither their path nor an address depends on a secret: under
// valgrind (taint.cpp), and by following two runs step by step (trace.cpp).
#pragma once

#include <functional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "common/random.h"
#include "common/taint.h"

namespace shieldfl::tests {

struct SecretOperation {
  std::string name;
  // Makes the inputs: the secrets, which are marked and differ between variants 0 and 1, and what is public,
  // which does not. Allocates alike for both. What it returns is watched.
  //
  // A stream of random bytes has the same seed in both variants. The trace exchanges the words of every pair
  // in variant 1, so that samples differ while the same proposals are rejected (exchange.h).
  std::function<std::function<void()>(int variant)> prepare;
};

// The kernels of the instruction set in use, on small inputs.
std::vector<SecretOperation> kernel_operations();
// The encryption of one ciphertext.
std::vector<SecretOperation> block_operations();
// Whole updates and totals, keys and noise.
std::vector<SecretOperation> long_operations();
// What cannot be traced to any purpose: the secrets do not differ, or most steps are on public numbers.
std::vector<SecretOperation> valgrind_operations();
// Paillier's engine on numbers of a few words, packing and randomisers' exponents.
std::vector<SecretOperation> paillier_operations();
// Of the same, what takes longest, on more words.
std::vector<SecretOperation> wide_paillier_operations();
// A whole update and a secret key, at full length: tens of millions of steps, too many to be traced.
std::vector<SecretOperation> long_paillier_operations();
// The encryption of one ciphertext under a client's key, and how that key goes on.
std::vector<SecretOperation> enrolled_operations();
// Whole updates, sum keys, and opening by keys of others.
std::vector<SecretOperation> long_enrolled_operations();
// Opening: one sum key opens a total, so secrets do not differ.
std::vector<SecretOperation> valgrind_enrolled_operations();

// What the checks have to find.
SecretOperation leaking_branch();
SecretOperation leaking_sample();        // a branch on what encryption draws
SecretOperation leaking_frame_secret();  // the same under a client's key
SecretOperation leaking_look_up();
// Integer division takes a time of its own for some numbers, on many processors. Valgrind is blind to this.
SecretOperation leaking_division();
// One for every form of a division's operand, for the trace. The second ones are no leaks: what is secret
// lies beside the divisor.
std::vector<SecretOperation> leaking_divisors();
std::vector<SecretOperation> public_divisors();

template <typename Container>
Container as_secret(Container values) {
  mark_secret(values.data(), values.size() * sizeof(typename Container::value_type));
  return values;
}

// The seed of everything that is drawn, and of identifiers.
class SecretSeeds final : public SeedSource {
 public:
  Seed next() override {
    const Seed seed = seeds_.next();
    mark_secret(seed.bytes.data(), seed.bytes.size());
    return seed;
  }

 private:
  InsecureTestRandom seeds_{2026};
};

// The generator of a variant's secrets.
inline std::mt19937_64 secrets_of(int variant) {
  return std::mt19937_64(static_cast<std::uint64_t>(variant) + 1);
}

// Keeps the compiler from leaving out what computes `value`.
template <typename T>
void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace shieldfl::tests
