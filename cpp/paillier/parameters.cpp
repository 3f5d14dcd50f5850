#include "paillier/parameters.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>

#include "common/error.h"

namespace shieldfl::paillier {

unsigned Parameters::guard_bits() const {
  return static_cast<unsigned>(std::bit_width(max_total_weight() - 1));
}

// With f = field_bits, the sum of k fields s_j 2^(j f), each at most 2^(f-1) - 1 in magnitude, is at most
// (2^(f-1) - 1) (2^(k f) - 1) / (2^f - 1) < 2^(k f - 1) in magnitude. With k f <= key_bits - 2 - b, b being
// spare_bits, that is below 2^(key_bits - 3 - b), and n is above 2^(key_bits - 1): signed sums are apart, and
// of all plaintexts a share of 2^-(b + 1) at most is one of them.
std::size_t Parameters::values_per_ciphertext() const {
  return facts_.packing == Packing::kSingle ? 1 : (facts_.key_bits - 2U - facts_.spare_bits) / field_bits();
}

double Parameters::bytes_per_value() const {
  return static_cast<double>(ciphertext_bytes()) / static_cast<double>(values_per_ciphertext());
}

int Parameters::security_bits() const {
  return facts_.key_bits < 3072 ? 112 : 128;
}

Parameters::Parameters(const ParameterFacts& facts) : facts_(facts), id_(digest(facts.encode())) {
  require(std::ranges::find(kKeyBits, facts.key_bits) != std::end(kKeyBits),
          "key_bits must be 2048, 3072 or 4096");
  require(facts.packing == Packing::kSingle || facts.packing == Packing::kDense,
          "packing must be single or dense");
  require(facts.randomizer == Randomizer::kShortExponent || facts.randomizer == Randomizer::kClassical,
          "the randomiser must be short-exponent or classical");
  scheme::check_max_clients(facts.max_clients);
  require(facts.max_weight >= 1 && facts.max_weight <= kMaxWeight,
          "max_weight must be between 1 and " + std::to_string(kMaxWeight));
  require(facts.spare_bits == 0 || facts.spare_bits == kSpareBits,
          "spare_bits must be " + std::to_string(kSpareBits) + ", or 0 for old frames");
  scheme::check_ranges(fixed_point(), guard_bits());
}

std::vector<std::uint8_t> ParameterFacts::encode() const {
  std::vector<std::uint8_t> bytes(kEncodedBytes);
  std::memcpy(bytes.data(), &key_bits, sizeof key_bits);
  bytes[2] = static_cast<std::uint8_t>(packing);
  bytes[3] = static_cast<std::uint8_t>(randomizer);
  bytes[4] = value_bits;
  bytes[5] = fraction_bits;
  bytes[6] = spare_bits;  // a byte is reserved behind it
  std::memcpy(bytes.data() + 8, &max_clients, sizeof max_clients);
  std::memcpy(bytes.data() + 12, &max_weight, sizeof max_weight);
  return bytes;
}

Parameters Parameters::read(FrameReader& reader) {
  ParameterFacts facts;
  facts.key_bits = reader.take<std::uint16_t>();
  facts.packing = static_cast<Packing>(reader.take<std::uint8_t>());
  facts.randomizer = static_cast<Randomizer>(reader.take<std::uint8_t>());
  facts.value_bits = reader.take<std::uint8_t>();
  facts.fraction_bits = reader.take<std::uint8_t>();
  facts.spare_bits = reader.take<std::uint8_t>();
  const auto reserved = reader.take<std::uint8_t>();
  facts.max_clients = reader.take<std::uint32_t>();
  facts.max_weight = reader.take<std::uint32_t>();
  const std::string altered = "the frame's parameters are out of range: it was altered";
  if (reserved != 0) throw Error(ErrorCode::kWireFormat, altered);
  try {
    return Parameters(facts);
  } catch (const Error&) {
    throw Error(ErrorCode::kWireFormat, altered);
  }
}

}  // namespace shieldfl::paillier
