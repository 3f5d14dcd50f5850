// What everybody in a session agrees on: ranges of values, and room for their sums. docs/explanation/pads.md
// has the argument for its security.
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
#include "scheme/fixed_point.h"

namespace shieldfl::pads {

// Words under a pad that are drawn, packed and checked together.
inline constexpr std::size_t kBlockWords = 1024;
// The last words of every block carry zero: so many bits that a total which is not what its list says opens
// with a chance of 2^-90 for each block at most.
inline constexpr unsigned kZeroBits = 90;

// Everything that frames must agree on: the parameter id is the digest of its encoding.
struct ParameterFacts {
  std::uint8_t value_bits = 0;
  std::uint8_t fraction_bits = 0;
  std::uint32_t max_clients = 0;
  std::uint8_t omitted_guard_bits = 0;

  bool operator==(const ParameterFacts&) const = default;

  [[nodiscard]] unsigned guard_bits() const;  // ceil(log2 max_clients), less those that are omitted
  [[nodiscard]] unsigned field_bits() const;  // value_bits + guard_bits: sums are modulo 2^field_bits
  [[nodiscard]] std::uint64_t field_mask() const { return (std::uint64_t{1} << field_bits()) - 1; }
  [[nodiscard]] scheme::FixedPoint fixed_point() const { return {value_bits, fraction_bits}; }
  // Whether every sum fits its field; otherwise whoever encrypts sees to it that sums are small enough.
  [[nodiscard]] bool holds_any_sum() const { return omitted_guard_bits == 0; }
  [[nodiscard]] std::size_t zeros_per_block() const;
  [[nodiscard]] std::size_t values_per_block() const { return kBlockWords - zeros_per_block(); }
  // How a block travels, in a batch and in a total alike.
  [[nodiscard]] packed::BlockFormat format(FrameKind kind) const;
  [[nodiscard]] packed::IntegerRows integer_rows() const { return {1, kBlockWords, values_per_block()}; }
  [[nodiscard]] std::vector<std::uint8_t> encode() const;
  [[nodiscard]] Id id() const;

  static constexpr std::size_t kEncodedBytes = 12;
  // Throws Error(kWireFormat) unless the fields are in range.
  static ParameterFacts read(FrameReader& reader);
};

struct ParameterRequest {
  std::uint32_t max_clients = 64;
  unsigned value_bits = 24;
  unsigned fraction_bits = 20;
  // Of a field, sign included; by default as many as hold any sum of max_clients values.
  std::optional<unsigned> sum_bits = {};
};

// Immutable.
class Parameters {
 public:
  // Throws Error(kParameter) that names the limit when a setting is out of range.
  static std::shared_ptr<const Parameters> derive(const ParameterRequest& request);
  static std::shared_ptr<const Parameters> from_facts(const ParameterFacts& facts);

  [[nodiscard]] const ParameterFacts& facts() const { return facts_; }
  [[nodiscard]] const Id& id() const { return id_; }
  [[nodiscard]] double bytes_per_value() const;
  // Sums of such blocks.
  [[nodiscard]] packed::PackedSums sums(std::size_t threads) const;

 private:
  explicit Parameters(const ParameterFacts& facts) : facts_(facts), id_(facts.id()) {}

  ParameterFacts facts_;
  Id id_;
};

}  // namespace shieldfl::pads
