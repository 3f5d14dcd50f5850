#include "pads/parameters.h"

#include <cstring>
#include <limits>

#include "common/error.h"

namespace shieldfl::pads {

unsigned ParameterFacts::guard_bits() const {
  return scheme::full_guard_bits(max_clients) - omitted_guard_bits;
}

unsigned ParameterFacts::field_bits() const {
  return value_bits + guard_bits();
}

std::size_t ParameterFacts::zeros_per_block() const {
  return (kZeroBits + field_bits() - 1) / field_bits();
}

packed::BlockFormat ParameterFacts::format(FrameKind) const {
  return {kBlockWords, {{std::uint64_t{1} << field_bits(), {field_bits(), 0}}}};
}

std::vector<std::uint8_t> ParameterFacts::encode() const {
  std::vector<std::uint8_t> bytes(kEncodedBytes);
  bytes[0] = value_bits;
  bytes[1] = fraction_bits;
  bytes[2] = omitted_guard_bits;
  const auto block_words = static_cast<std::uint32_t>(kBlockWords);
  std::memcpy(bytes.data() + 4, &block_words, sizeof block_words);
  std::memcpy(bytes.data() + 8, &max_clients, sizeof max_clients);
  return bytes;
}

Id ParameterFacts::id() const {
  return digest(encode());
}

ParameterFacts ParameterFacts::read(FrameReader& reader) {
  ParameterFacts facts;
  facts.value_bits = reader.take<std::uint8_t>();
  facts.fraction_bits = reader.take<std::uint8_t>();
  facts.omitted_guard_bits = reader.take<std::uint8_t>();
  const auto reserved = reader.take<std::uint8_t>();
  const auto block_words = reader.take<std::uint32_t>();
  facts.max_clients = reader.take<std::uint32_t>();
  if (reserved != 0 || block_words != kBlockWords ||
      facts.omitted_guard_bits > scheme::full_guard_bits(facts.max_clients) ||
      !scheme::in_ranges(facts.fixed_point(), facts.guard_bits(), facts.max_clients)) {
    throw Error(ErrorCode::kWireFormat, "the frame's parameters are out of range: it was altered");
  }
  return facts;
}

std::shared_ptr<const Parameters> Parameters::derive(const ParameterRequest& request) {
  const std::uint8_t omitted =
      scheme::check_sums({request.value_bits, request.fraction_bits}, request.max_clients, request.sum_bits);
  return from_facts({static_cast<std::uint8_t>(request.value_bits),
                     static_cast<std::uint8_t>(request.fraction_bits), request.max_clients, omitted});
}

std::shared_ptr<const Parameters> Parameters::from_facts(const ParameterFacts& facts) {
  return std::shared_ptr<const Parameters>(new Parameters(facts));
}

double Parameters::bytes_per_value() const {
  return static_cast<double>(facts_.format(FrameKind::kPadsBatch).bytes()) /
         static_cast<double>(facts_.values_per_block());
}

packed::PackedSums Parameters::sums(std::size_t threads) const {
  // Modulo 2^64, and so modulo 2^field_bits, whatever their number.
  const auto reduce = [mask = facts_.field_mask()](std::span<std::uint64_t> sums) {
    for (std::uint64_t& sum : sums) sum &= mask;
  };
  return {kBlockWords, std::numeric_limits<std::size_t>::max(), reduce, threads};
}

}  // namespace shieldfl::pads
