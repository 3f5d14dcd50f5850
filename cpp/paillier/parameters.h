// What everybody in a federation agrees on before the first round: key size, packing, ranges, randomisers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/digest.h"
#include "common/wire.h"
#include "scheme/fixed_point.h"

namespace shieldfl::paillier {

enum class Packing : std::uint8_t {
  kSingle = 1,  // one value in a ciphertext, as in SenseCrypt
  kDense = 2,   // as many fields, with guard bits between them, as a plaintext holds
};

// How a ciphertext (1 + m n) s is hidden: what s is.
enum class Randomizer : std::uint8_t {
  // h_n^a with h_n = h^n, h = -x^2 and a random exponent of half the modulus' length (Damgard, Jurik and
  // Nielsen 2010, section 4.2): powers of one base, which a table makes quick.
  kShortExponent = 1,
  kClassical = 2,  // r^n with r random below n (Paillier 1999)
};

inline constexpr std::uint16_t kKeyBits[] = {2048, 3072, 4096};
inline constexpr std::uint32_t kMaxWeight = 1U << 20;
// What a random plaintext passes the range check with is 2^-kSpareBits at most, however full a total is.
inline constexpr std::uint8_t kSpareBits = 40;

// All of it travels with every frame: the parameter id is the digest of its encoding. Whether it is in range
// is for Parameters to know.
struct ParameterFacts {
  std::uint16_t key_bits = 3072;  // of n: exactly
  Packing packing = Packing::kDense;
  Randomizer randomizer = Randomizer::kShortExponent;
  std::uint8_t value_bits = 24;
  std::uint8_t fraction_bits = 20;
  std::uint32_t max_clients = 64;
  std::uint32_t max_weight = 1;  // the largest integer weight of a client at the aggregator
  // Of a plaintext, left unused above the fields and the sign: kSpareBits, or 0 for frames from before there
  // were any, which are read and opened as they always were.
  std::uint8_t spare_bits = kSpareBits;

  bool operator==(const ParameterFacts&) const = default;

  [[nodiscard]] std::vector<std::uint8_t> encode() const;
  static constexpr std::size_t kEncodedBytes = 16;
};

// Immutable and in range; every later function may trust it.
class Parameters {
 public:
  // Throws Error(kParameter) that names the limit.
  explicit Parameters(const ParameterFacts& facts);
  // Throws Error(kWireFormat) where those that were read are out of range.
  static Parameters read(FrameReader& reader);

  bool operator==(const Parameters&) const = default;

  [[nodiscard]] const ParameterFacts& facts() const { return facts_; }
  [[nodiscard]] const Id& id() const { return id_; }

  [[nodiscard]] scheme::FixedPoint fixed_point() const { return {facts_.value_bits, facts_.fraction_bits}; }
  [[nodiscard]] std::int64_t max_magnitude() const { return fixed_point().max_magnitude(); }
  // The sum of all clients' integer weights, at most.
  [[nodiscard]] std::uint64_t max_total_weight() const {
    return std::uint64_t{facts_.max_clients} * facts_.max_weight;
  }
  // ceil(log2(max_clients * max_weight)).
  [[nodiscard]] unsigned guard_bits() const;
  // A sum is below 2^(field_bits - 1) in magnitude.
  [[nodiscard]] unsigned field_bits() const { return facts_.value_bits + guard_bits(); }
  [[nodiscard]] std::size_t values_per_ciphertext() const;
  [[nodiscard]] std::size_t modulus_words() const { return facts_.key_bits / 64; }    // of n
  [[nodiscard]] std::size_t modulus_bytes() const { return facts_.key_bits / 8; }     // of n
  [[nodiscard]] std::size_t ciphertext_words() const { return 2 * modulus_words(); }  // of a residue mod n^2
  [[nodiscard]] std::size_t ciphertext_bytes() const { return 2 * modulus_bytes(); }
  [[nodiscard]] unsigned exponent_bits() const { return facts_.key_bits / 2U; }  // of a short exponent
  [[nodiscard]] double bytes_per_value() const;
  // The largest strength that NIST SP 800-57 part 1, table 2, lists for a modulus not longer than n: 4096
  // bits, which it does not list, count as 3072.
  [[nodiscard]] int security_bits() const;

 private:
  ParameterFacts facts_;
  Id id_;
};

}  // namespace shieldfl::paillier
