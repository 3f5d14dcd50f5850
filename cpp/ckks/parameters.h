// What everybody in a federation agrees on before the first round: packing, ranges, ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ckks/noise_bound.h"
#include "ckks/seal_bridge.h"
#include "common/digest.h"
#include "common/wire.h"
#include "packed/block_format.h"
#include "ring/bit_packing.h"
#include "ring/ntt.h"
#include "rlwe/digits.h"
#include "rlwe/field_packing.h"
#include "scheme/fixed_point.h"

namespace shieldfl::ckks {

enum class Packing : std::uint8_t {
  kExact = 1,  // fixed-point integers in polynomial coefficients; sums are exact
  kSlots = 2,  // CKKS canonical embedding; sums are approximate and leave the authority flooded
};

// Everything that frames must agree on: the parameter id is the digest of its encoding. Read from the wire it
// is only known to be well-formed; Parameters below also knows that it is the result of the derivation.
struct ParameterFacts {
  Packing packing = Packing::kExact;
  std::uint8_t value_bits = 0;
  std::uint8_t fraction_bits = 0;
  std::uint8_t values_per_coefficient = 0;  // exact; 0 for slots
  std::uint8_t log2_scale = 0;              // exact: the factor above the noise; slots: the CKKS scale
  std::uint8_t log2_flooding = 0;           // slots: standard deviation of the flooding noise; 0 for exact
  std::uint8_t dropped_bits0 = 0;           // of each coefficient of a batch's first half
  std::uint8_t dropped_bits1 = 0;           // and of its second
  std::uint32_t max_clients = 0;
  std::uint32_t degree = 0;
  std::vector<std::uint64_t> primes;

  bool operator==(const ParameterFacts&) const = default;

  [[nodiscard]] unsigned guard_bits() const;  // ceil(log2 max_clients)
  [[nodiscard]] unsigned field_bits() const;  // value_bits + guard_bits
  [[nodiscard]] scheme::FixedPoint fixed_point() const { return {value_bits, fraction_bits}; }
  [[nodiscard]] std::int64_t max_magnitude() const { return fixed_point().max_magnitude(); }
  [[nodiscard]] std::size_t values_per_block() const;
  [[nodiscard]] DroppedBits dropped_bits() const { return {dropped_bits0, dropped_bits1}; }
  [[nodiscard]] std::size_t row_count() const { return 2 * primes.size(); }  // of one ciphertext
  [[nodiscard]] std::size_t block_words() const;  // residues in one ciphertext: row_count() * degree
  // How a ciphertext travels, in a batch with its lowest bits dropped.
  [[nodiscard]] packed::BlockFormat format(FrameKind kind) const;
  // No fields with slots.
  [[nodiscard]] rlwe::FieldShape field_shape() const;
  [[nodiscard]] std::vector<std::uint8_t> encode() const;
  [[nodiscard]] Id id() const;

  static constexpr std::size_t kMaxPrimes = 2;
  static constexpr std::size_t encoded_bytes(std::size_t prime_count) { return 20 + 8 * prime_count; }
  // Throws Error(kWireFormat) unless the fields are in range and consistent.
  static ParameterFacts read(FrameReader& reader);
};

struct ParameterRequest {
  Packing packing = Packing::kExact;
  std::uint32_t max_clients = 64;
  unsigned value_bits = 24;
  unsigned fraction_bits = 20;
  std::optional<std::uint32_t> ring_degree;  // 2048 or 4096; by default the smallest that has room
};

// Immutable; every later function may trust it.
class Parameters {
 public:
  // Chooses the ring, the primes and the scale. Throws Error(kParameter) that names the limit when a setting
  // is out of range, or when no ring of 128-bit security has room for these values.
  static std::shared_ptr<const Parameters> derive(const ParameterRequest& request);
  // The same from facts that were read; throws Error(kParameter) unless the derivation gives these very
  // facts.
  static std::shared_ptr<const Parameters> from_facts(const ParameterFacts& facts);

  [[nodiscard]] const ParameterFacts& facts() const { return facts_; }
  [[nodiscard]] const Id& id() const { return id_; }
  [[nodiscard]] const std::vector<ring::Ntt>& ntts() const { return ntts_; }
  [[nodiscard]] const rlwe::DigitBasis& digits() const { return digits_; }
  [[nodiscard]] const SlotEncoder& slot_encoder() const { return *slot_encoder_; }  // slots only

  [[nodiscard]] double bytes_per_value() const;  // in a batch
  [[nodiscard]] double value_limit() const { return facts_.fixed_point().value_limit(); }
  [[nodiscard]] double error_bound() const;  // of a coefficient in the sum of max_clients ciphertexts

 private:
  explicit Parameters(ParameterFacts facts);

  ParameterFacts facts_;
  Id id_;
  std::vector<ring::Ntt> ntts_;
  rlwe::DigitBasis digits_;
  std::unique_ptr<const SlotEncoder> slot_encoder_;
};

using ParametersPointer = std::shared_ptr<const Parameters>;

}  // namespace shieldfl::ckks
