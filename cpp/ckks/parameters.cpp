#include "ckks/parameters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "ckks/noise_bound.h"
#include "ckks/parameter_search.h"
#include "common/error.h"
#include "rlwe/moduli.h"
#include "rlwe/packed_digits.h"

namespace shieldfl::ckks {

unsigned ParameterFacts::guard_bits() const {
  return scheme::full_guard_bits(max_clients);
}

unsigned ParameterFacts::field_bits() const {
  return value_bits + guard_bits();
}

std::size_t ParameterFacts::values_per_block() const {
  return packing == Packing::kExact ? std::size_t{degree} * values_per_coefficient : degree / 2;
}

std::size_t ParameterFacts::block_words() const {
  return row_count() * degree;
}

packed::BlockFormat ParameterFacts::format(FrameKind kind) const {
  std::vector<packed::RowFormat> rows;
  for (const std::uint8_t dropped_bits : {dropped_bits0, dropped_bits1}) {
    for (std::size_t p = 0; p < primes.size(); ++p) {
      // Of the lowest digit alone, in a batch: upper digits are all signal.
      const unsigned dropped = kind == FrameKind::kCkksBatch && p == 0 ? dropped_bits : 0;
      rows.push_back({primes[p], {static_cast<unsigned>(std::bit_width(primes[p])) - dropped, dropped}});
    }
  }
  return {degree, std::move(rows)};
}

rlwe::FieldShape ParameterFacts::field_shape() const {
  return {degree, values_per_coefficient, field_bits(), log2_scale, fixed_point()};
}

std::vector<std::uint8_t> ParameterFacts::encode() const {
  std::vector<std::uint8_t> bytes(encoded_bytes(primes.size()));
  const std::uint8_t head[12] = {static_cast<std::uint8_t>(packing),
                                 value_bits,
                                 fraction_bits,
                                 values_per_coefficient,
                                 log2_scale,
                                 log2_flooding,
                                 dropped_bits0,
                                 dropped_bits1,
                                 static_cast<std::uint8_t>(primes.size())};
  std::memcpy(bytes.data(), head, sizeof head);
  std::memcpy(bytes.data() + 12, &max_clients, sizeof max_clients);
  std::memcpy(bytes.data() + 16, &degree, sizeof degree);
  std::memcpy(bytes.data() + 20, primes.data(), 8 * primes.size());
  return bytes;
}

Id ParameterFacts::id() const {
  return digest(encode());
}

ParameterFacts ParameterFacts::read(FrameReader& reader) {
  ParameterFacts facts;
  const auto packing = reader.take<std::uint8_t>();
  facts.packing = static_cast<Packing>(packing);
  facts.value_bits = reader.take<std::uint8_t>();
  facts.fraction_bits = reader.take<std::uint8_t>();
  facts.values_per_coefficient = reader.take<std::uint8_t>();
  facts.log2_scale = reader.take<std::uint8_t>();
  facts.log2_flooding = reader.take<std::uint8_t>();
  facts.dropped_bits0 = reader.take<std::uint8_t>();
  facts.dropped_bits1 = reader.take<std::uint8_t>();
  const std::size_t prime_count = reader.take<std::uint8_t>();
  const std::uint32_t reserved = reader.take<std::uint8_t>() | reader.take<std::uint16_t>();
  facts.max_clients = reader.take<std::uint32_t>();
  facts.degree = reader.take<std::uint32_t>();
  const bool exact = packing == static_cast<std::uint8_t>(Packing::kExact);
  const bool slots = packing == static_cast<std::uint8_t>(Packing::kSlots);
  bool valid = (exact || slots) && reserved == 0 && prime_count >= 1 && prime_count <= kMaxPrimes &&
               scheme::in_ranges(facts.fixed_point(), facts.guard_bits(), facts.max_clients) &&
               (facts.degree == 2048 || facts.degree == 4096) &&
               facts.dropped_bits0 <= rlwe::kMaxDroppedBits && facts.dropped_bits1 <= rlwe::kMaxDroppedBits &&
               (exact ? facts.values_per_coefficient >= 1 && facts.log2_flooding == 0
                      : facts.values_per_coefficient == 0);
  for (std::size_t i = 0; valid && i < prime_count; ++i) {
    const auto prime = reader.take<std::uint64_t>();
    valid = prime % (2 * std::uint64_t{facts.degree}) == 1 && std::bit_width(prime) >= rlwe::kMinPrimeBits &&
            std::bit_width(prime) <= rlwe::kMaxPrimeBits;
    facts.primes.push_back(prime);
  }
  if (!valid) throw Error(ErrorCode::kWireFormat, "the frame's parameters are out of range: it was altered");
  return facts;
}

std::shared_ptr<const Parameters> Parameters::derive(const ParameterRequest& request) {
  scheme::check_sums({request.value_bits, request.fraction_bits}, request.max_clients, {});
  require(!request.ring_degree || *request.ring_degree == 2048 || *request.ring_degree == 4096,
          "ring_degree must be 2048 or 4096");
  const std::optional<ParameterFacts> facts = search_parameters(request);
  require(facts.has_value(),
          "no ring of 128-bit security has room for these values: lower value_bits or max_clients" +
              std::string(request.ring_degree == 2048U ? ", or choose ring_degree=4096" : ""));
  rlwe::check_security(facts->degree, facts->primes);
  return std::shared_ptr<const Parameters>(new Parameters(*facts));
}

std::shared_ptr<const Parameters> Parameters::from_facts(const ParameterFacts& facts) {
  ParameterRequest request{facts.packing, facts.max_clients, facts.value_bits, facts.fraction_bits,
                           facts.degree};
  auto parameters = derive(request);
  require(
      parameters->facts() == facts,
      "these ring parameters are not the ones that this build derives from the same settings: use the same "
      "version of shieldfl on both sides");
  return parameters;
}

Parameters::Parameters(ParameterFacts facts)
    : facts_(std::move(facts)), id_(facts_.id()), digits_(facts_.degree, facts_.primes) {
  for (const std::uint64_t prime : facts_.primes) ntts_.emplace_back(facts_.degree, ring::Modulus(prime));
  if (facts_.packing == Packing::kSlots) {
    slot_encoder_ = std::make_unique<const SlotEncoder>(facts_.degree, facts_.primes);
  }
}

double Parameters::bytes_per_value() const {
  return static_cast<double>(facts_.format(FrameKind::kCkksBatch).bytes()) /
         static_cast<double>(facts_.values_per_block());
}

double Parameters::error_bound() const {
  return ckks::error_bound(facts_.degree, facts_.max_clients, facts_.dropped_bits());
}

}  // namespace shieldfl::ckks
