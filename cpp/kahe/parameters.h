// What everybody in a session agrees on: ranges, ring, fields. docs/explanation/kahe-proofs.md has the
// argument for its security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/digest.h"
#include "common/wire.h"
#include "packed/block_format.h"
#include "packed/packed_sums.h"
#include "packed/payload_encryption.h"
#include "ring/ntt.h"
#include "rlwe/digits.h"
#include "rlwe/field_packing.h"
#include "scheme/fixed_point.h"

namespace shieldfl::kahe {

// Secrets and errors are sums of so many of ring/sampler.h's centred binomials, each of 21 + 21 coins.
inline constexpr int kBinomials = 2;
// Ciphertexts that share a secret polynomial, and public polynomials that a session has.
inline constexpr std::size_t kBlocksPerSecret = 32;

// Everything that frames must agree on: the parameter id is the digest of its encoding. Read from the wire it
// is only known to be well-formed; Parameters below also knows that it is the result of the derivation.
struct ParameterFacts {
  std::uint8_t value_bits = 0;
  std::uint8_t fraction_bits = 0;
  std::uint8_t values_per_coefficient = 0;
  std::uint8_t log2_scale = 0;    // the factor above the noise
  std::uint8_t dropped_bits = 0;  // of each coefficient of a batch
  std::uint8_t omitted_guard_bits = 0;
  std::uint32_t max_clients = 0;
  std::uint32_t degree = 0;
  std::vector<std::uint64_t> primes;

  bool operator==(const ParameterFacts&) const = default;

  [[nodiscard]] unsigned guard_bits() const;  // ceil(log2 max_clients), less those that are omitted
  [[nodiscard]] unsigned field_bits() const;  // value_bits + guard_bits
  [[nodiscard]] scheme::FixedPoint fixed_point() const { return {value_bits, fraction_bits}; }
  // Whether every sum fits its field; otherwise whoever encrypts sees to it that sums are small enough.
  [[nodiscard]] bool holds_any_sum() const { return omitted_guard_bits == 0; }
  // The last coefficient of a ciphertext holds none: it has to open to zero.
  [[nodiscard]] std::size_t row_values() const { return degree - 1; }
  [[nodiscard]] std::size_t values_per_block() const { return row_values() * values_per_coefficient; }
  [[nodiscard]] rlwe::FieldShape field_shape() const;
  // A row for each field of the coefficients, each but for the last coefficient.
  [[nodiscard]] packed::IntegerRows integer_rows() const;
  // How a ciphertext travels, in a batch with its lowest bits dropped.
  [[nodiscard]] packed::BlockFormat format(FrameKind kind) const;
  [[nodiscard]] std::vector<std::uint8_t> encode() const;
  [[nodiscard]] Id id() const;

  static constexpr std::size_t encoded_bytes(std::size_t prime_count) { return 16 + 8 * prime_count; }
  // Throws Error(kWireFormat) unless the fields are in range and consistent.
  static ParameterFacts read(FrameReader& reader);
};

struct ParameterRequest {
  std::uint32_t max_clients = 64;
  unsigned value_bits = 24;
  unsigned fraction_bits = 20;
  std::optional<std::uint32_t> ring_degree = {};  // 2048, 4096 or 8192; by default 4096
  // Of a field, sign included; by default as many as hold any sum of max_clients values.
  std::optional<unsigned> sum_bits = {};
};

// Immutable; every later function may trust it.
class Parameters {
 public:
  // Chooses primes, fields and scale. Throws Error(kParameter) that names the limit when a setting is out of
  // range, or when the ring has no room for these values at 128-bit security.
  static std::shared_ptr<const Parameters> derive(const ParameterRequest& request);
  // The same from facts that were read; throws Error(kParameter) unless the derivation gives these very
  // facts.
  static std::shared_ptr<const Parameters> from_facts(const ParameterFacts& facts);

  [[nodiscard]] const ParameterFacts& facts() const { return facts_; }
  [[nodiscard]] const Id& id() const { return id_; }
  [[nodiscard]] const std::vector<ring::Ntt>& ntts() const { return ntts_; }
  [[nodiscard]] const rlwe::DigitBasis& digits() const { return digits_; }
  // Sums of such ciphertexts.
  [[nodiscard]] packed::PackedSums sums(std::size_t threads) const;

  [[nodiscard]] double bytes_per_value() const;  // in a batch
  // -log2 of the probability that a coefficient of an honest sum of max_clients is opened wrongly, at least.
  [[nodiscard]] double failure_bits() const;

 private:
  explicit Parameters(ParameterFacts facts);

  ParameterFacts facts_;
  Id id_;
  std::vector<ring::Ntt> ntts_;
  rlwe::DigitBasis digits_;
};

using ParametersPointer = std::shared_ptr<const Parameters>;

}  // namespace shieldfl::kahe
