// The door to Microsoft SEAL for what is CKKS (primes are in rlwe/moduli): key generation, with SEAL's own
// check of 128-bit security, and the slot encoder. SEAL never sees bytes that came from outside, and none of
// its types leave this file's source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/secure_memory.h"

namespace shieldfl::ckks {

// The version of the SEAL that was compiled in, such as "4.1.2".
std::string seal_version();

// One RLWE key pair, every polynomial in NTT form, one row of `degree` residues after another for each prime.
struct KeyMaterial {
  SecretVector<std::uint64_t> secret;  // s, ternary
  std::vector<std::uint64_t> public0;  // -(a s + e)
  std::vector<std::uint64_t> public1;  // a, uniform
};
KeyMaterial generate_key_material(std::size_t degree, std::span<const std::uint64_t> primes);

// The CKKS canonical embedding: degree / 2 real numbers in one plaintext polynomial.
class SlotEncoder {
 public:
  SlotEncoder(std::size_t degree, std::span<const std::uint64_t> primes);
  ~SlotEncoder();

  // round(scale * embedding^-1(values)), as rows of residues in NTT form. At most degree / 2 values, the rest
  // of the slots being zero. Thread-safe.
  void encode(std::span<const double> values, double scale, std::span<std::uint64_t> rows) const;
  // The inverse, for rows in NTT form: fills `values`, at most degree / 2 of them. Thread-safe.
  void decode(std::span<const std::uint64_t> rows, double scale, std::span<double> values) const;

 private:
  struct Implementation;
  std::unique_ptr<const Implementation> implementation_;
};

}  // namespace shieldfl::ckks
