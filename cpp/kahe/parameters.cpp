#include "kahe/parameters.h"

#include <bit>
#include <cstring>
#include <string>

#include "common/error.h"
#include "kahe/parameter_search.h"
#include "rlwe/moduli.h"
#include "rlwe/packed_digits.h"

namespace shieldfl::kahe {
namespace {

constexpr std::uint32_t kDefaultDegree = 4096;

bool is_degree(std::uint32_t degree) {
  return degree == 2048 || degree == 4096 || degree == 8192;
}

}  // namespace

unsigned ParameterFacts::guard_bits() const {
  return scheme::full_guard_bits(max_clients) - omitted_guard_bits;
}

unsigned ParameterFacts::field_bits() const {
  return value_bits + guard_bits();
}

rlwe::FieldShape ParameterFacts::field_shape() const {
  return {row_values(), values_per_coefficient, field_bits(), log2_scale, fixed_point()};
}

packed::BlockFormat ParameterFacts::format(FrameKind kind) const {
  std::vector<packed::RowFormat> rows;
  for (std::size_t p = 0; p < primes.size(); ++p) {
    // Of the lowest digit alone: upper digits are all signal.
    const unsigned dropped = kind == FrameKind::kKaheBatch && p == 0 ? dropped_bits : 0;
    rows.push_back({primes[p], {static_cast<unsigned>(std::bit_width(primes[p])) - dropped, dropped}});
  }
  return {degree, std::move(rows)};
}

packed::IntegerRows ParameterFacts::integer_rows() const {
  return {values_per_coefficient, degree, row_values()};
}

std::vector<std::uint8_t> ParameterFacts::encode() const {
  std::vector<std::uint8_t> bytes(encoded_bytes(primes.size()));
  const std::uint8_t head[8] = {value_bits,        fraction_bits, values_per_coefficient,
                                log2_scale,        dropped_bits,  static_cast<std::uint8_t>(primes.size()),
                                omitted_guard_bits};
  std::memcpy(bytes.data(), head, sizeof head);
  std::memcpy(bytes.data() + 8, &max_clients, sizeof max_clients);
  std::memcpy(bytes.data() + 12, &degree, sizeof degree);
  std::memcpy(bytes.data() + 16, primes.data(), 8 * primes.size());
  return bytes;
}

Id ParameterFacts::id() const {
  return digest(encode());
}

ParameterFacts ParameterFacts::read(FrameReader& reader) {
  ParameterFacts facts;
  facts.value_bits = reader.take<std::uint8_t>();
  facts.fraction_bits = reader.take<std::uint8_t>();
  facts.values_per_coefficient = reader.take<std::uint8_t>();
  facts.log2_scale = reader.take<std::uint8_t>();
  facts.dropped_bits = reader.take<std::uint8_t>();
  const std::size_t prime_count = reader.take<std::uint8_t>();
  facts.omitted_guard_bits = reader.take<std::uint8_t>();
  const auto reserved = reader.take<std::uint8_t>();
  facts.max_clients = reader.take<std::uint32_t>();
  facts.degree = reader.take<std::uint32_t>();
  bool valid = reserved == 0 && prime_count >= 1 && prime_count <= rlwe::kMaxPrimes &&
               facts.omitted_guard_bits <= scheme::full_guard_bits(facts.max_clients) &&
               scheme::in_ranges(facts.fixed_point(), facts.guard_bits(), facts.max_clients) &&
               is_degree(facts.degree) && facts.values_per_coefficient >= 1 &&
               facts.dropped_bits <= rlwe::kMaxDroppedBits;
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
  const std::uint8_t omitted =
      scheme::check_sums({request.value_bits, request.fraction_bits}, request.max_clients, request.sum_bits);
  const std::uint32_t degree = request.ring_degree.value_or(kDefaultDegree);
  require(is_degree(degree), "ring_degree must be 2048, 4096 or 8192");
  const std::optional<ParameterFacts> facts = search_parameters(request, omitted, degree);
  require(facts.has_value(),
          "no ring of degree " + std::to_string(degree) +
              " has room for these values at 128-bit security: lower value_bits or max_clients" +
              std::string(degree == 2048 ? ", or choose ring_degree=4096" : ""));
  rlwe::check_security(facts->degree, facts->primes);
  return std::shared_ptr<const Parameters>(new Parameters(*facts));
}

std::shared_ptr<const Parameters> Parameters::from_facts(const ParameterFacts& facts) {
  auto parameters =
      derive({facts.max_clients, facts.value_bits, facts.fraction_bits, facts.degree, facts.field_bits()});
  require(
      parameters->facts() == facts,
      "these ring parameters are not the ones that this build derives from the same settings: use the same "
      "version of shieldfl on both sides");
  return parameters;
}

Parameters::Parameters(ParameterFacts facts)
    : facts_(std::move(facts)), id_(facts_.id()), digits_(facts_.degree, facts_.primes) {
  for (const std::uint64_t prime : facts_.primes) ntts_.emplace_back(facts_.degree, ring::Modulus(prime));
}

packed::PackedSums Parameters::sums(std::size_t threads) const {
  return rlwe::digit_sums(digits_, 1, threads);
}

double Parameters::bytes_per_value() const {
  return static_cast<double>(facts_.format(FrameKind::kKaheBatch).bytes()) /
         static_cast<double>(facts_.values_per_block());
}

double Parameters::failure_bits() const {
  return kahe::failure_bits(facts_.max_clients, facts_.log2_scale, facts_.dropped_bits);
}

}  // namespace shieldfl::kahe
