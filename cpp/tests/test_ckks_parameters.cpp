#include <seal/seal.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "ckks/noise_bound.h"
#include "ckks/parameter_search.h"
#include "ckks/parameters.h"
#include "ring/modulus.h"
#include "tests/check.h"

using namespace shieldfl;
using namespace shieldfl::ckks;
using ring::UInt128;

namespace {

UInt128 product(const std::vector<std::uint64_t>& primes) {
  UInt128 result = 1;
  for (const std::uint64_t prime : primes) result *= prime;
  return result;
}

// 2 * scale * plaintext + scale: what the modulus must exceed so that `values` fields and noise below half
// the scale do not wrap around.
UInt128 needed_modulus(const ParameterFacts& facts, unsigned values) {
  UInt128 plaintext = 0;
  for (unsigned j = 0; j < values; ++j) {
    plaintext += static_cast<UInt128>(facts.max_magnitude()) * facts.max_clients << (j * facts.field_bits());
  }
  return (2 * plaintext + 1) << facts.log2_scale;
}

unsigned modulus_bits(const ParameterFacts& facts) {
  unsigned bits = 0;
  for (const std::uint64_t prime : facts.primes) bits += static_cast<unsigned>(std::bit_width(prime));
  return bits;
}

// The largest modulus of a total length, split over the primes as evenly as can be; 0 when there is none.
UInt128 largest_modulus(const ParameterFacts& facts, unsigned bits) {
  const auto count = static_cast<unsigned>(facts.primes.size());
  std::vector<int> lengths(count, static_cast<int>(bits / count));
  lengths.back() += static_cast<int>(bits % count);
  try {
    UInt128 result = 1;
    for (const auto& modulus : seal::CoeffModulus::Create(facts.degree, lengths)) result *= modulus.value();
    return result;
  } catch (const std::logic_error&) {
    return 0;
  }
}

void check_exact(const ParameterFacts& facts) {
  CHECK(std::ldexp(1.0, facts.log2_scale) >= 2.0 * noise_bound(facts.degree, facts.max_clients));
  CHECK(std::ldexp(1.0, facts.log2_scale - 1) < 2.0 * noise_bound(facts.degree, facts.max_clients));
  CHECK(facts.values_per_coefficient >= 1 && facts.log2_flooding == 0);
  CHECK(product(facts.primes) > needed_modulus(facts, facts.values_per_coefficient));
  // A modulus that is one bit shorter has no room, and this ring's largest one has no room for a value more.
  CHECK(largest_modulus(facts, modulus_bits(facts) - 1) <=
        needed_modulus(facts, facts.values_per_coefficient));
  const auto room = static_cast<unsigned>(facts.primes.size()) * static_cast<unsigned>(kMaxPrimeBits);
  const unsigned one_more = facts.values_per_coefficient + 1U;
  if (one_more * facts.field_bits() + facts.log2_scale <
      120) {  // else it is out of the question, and overflows
    CHECK(largest_modulus(facts, room) <= needed_modulus(facts, one_more));
  }
}

void check_any(const Parameters& parameters, const ParameterRequest& request) {
  const ParameterFacts& facts = parameters.facts();
  CHECK(facts.max_clients == request.max_clients && facts.value_bits == request.value_bits);
  CHECK(facts.fraction_bits == request.fraction_bits && facts.packing == request.packing);
  CHECK((std::uint64_t{1} << facts.guard_bits()) >= facts.max_clients);
  CHECK(facts.guard_bits() == 0 || (std::uint64_t{1} << (facts.guard_bits() - 1)) < facts.max_clients);
  CHECK(static_cast<UInt128>(facts.max_magnitude()) * facts.max_clients < static_cast<UInt128>(1) << 53);
  const std::set<std::uint64_t> distinct(facts.primes.begin(), facts.primes.end());
  CHECK(distinct.size() == facts.primes.size());
  for (const std::uint64_t prime : facts.primes) {
    CHECK(seal::Modulus(prime).is_prime() && prime % (2 * facts.degree) == 1);
    CHECK(std::bit_width(prime) <= kMaxPrimeBits);
  }
  seal::EncryptionParameters seal_parameters(seal::scheme_type::ckks);
  seal_parameters.set_poly_modulus_degree(facts.degree);
  seal_parameters.set_coeff_modulus({facts.primes.begin(), facts.primes.end()});
  CHECK(seal::SEALContext(seal_parameters, true, seal::sec_level_type::tc128).parameters_set());
  CHECK(parameters.id() == facts.id());
  CHECK(Parameters::from_facts(facts)->facts() == facts);
}

ParameterFacts read_back(const std::vector<std::uint8_t>& encoded) {
  FrameWriter writer({FrameKind::kCkksPublicKey, {}, {}}, encoded.size());
  writer.put_bytes(encoded);
  const auto frame = writer.finish();
  FrameReader reader(frame, FrameKind::kCkksPublicKey);
  const ParameterFacts facts = ParameterFacts::read(reader);
  reader.expect_end();
  return facts;
}

// Facts that differ from the given ones in one field each: three settings, then six that follow from
// settings.
std::vector<ParameterFacts> variations(const ParameterFacts& facts) {
  std::vector<ParameterFacts> all(9, facts);
  ++all[0].value_bits;
  ++all[1].fraction_bits;
  ++all[2].max_clients;
  all[3].packing = facts.packing == Packing::kExact ? Packing::kSlots : Packing::kExact;
  ++all[4].log2_scale;
  ++all[5].log2_flooding;
  ++all[6].values_per_coefficient;
  all[7].degree = facts.degree == 2048 ? 4096 : 2048;
  all[8].primes.back() -= 2 * facts.degree;
  return all;
}

}  // namespace

TEST(exact_parameters_have_room_for_every_sum_and_no_more) {
  std::size_t derived = 0;
  for (const std::uint32_t max_clients : {1U, 2U, 3U, 20U, 33U, 64U, 1000U, 1U << 14, 1U << 20}) {
    for (const unsigned value_bits : {2U, 3U, 8U, 16U, 24U, 32U, 40U}) {
      for (const auto degree : {std::optional<std::uint32_t>{}, std::optional<std::uint32_t>{4096}}) {
        const ParameterRequest request{Packing::kExact, max_clients, value_bits, value_bits / 2, degree};
        std::shared_ptr<const Parameters> parameters;
        try {
          parameters = Parameters::derive(request);
        } catch (const Error& error) {
          // Only sums that do not fit a double are refused: the larger ring has room for all others.
          CHECK(error.code() == ErrorCode::kParameter);
          CHECK(value_bits + static_cast<unsigned>(std::bit_width(max_clients - 1)) > kMaxFieldBits);
          continue;
        }
        ++derived;
        check_any(*parameters, request);
        check_exact(parameters->facts());
        // The smaller ring is taken where it has room.
        if (!degree && parameters->facts().degree == 4096) {
          ParameterRequest smaller = request;
          smaller.ring_degree = 2048;
          CHECK_THROWS(Parameters::derive(smaller), ErrorCode::kParameter);
        }
      }
    }
  }
  CHECK(derived > 90);
}

TEST(slot_parameters_have_room_for_sums_and_flooding) {
  for (const std::uint32_t max_clients : {1U, 2U, 64U, 1000U}) {
    for (const unsigned value_bits : {8U, 16U, 24U}) {
      for (const unsigned fraction_bits : {0U, 8U, 20U, 24U}) {
        const ParameterRequest request{Packing::kSlots, max_clients, value_bits, fraction_bits, {}};
        const auto parameters = Parameters::derive(request);
        check_any(*parameters, request);
        const ParameterFacts& facts = parameters->facts();
        const double bound = parameters->noise_bound();
        const auto degree = static_cast<double>(facts.degree);
        const double flooding = std::ldexp(1.0, facts.log2_flooding);
        // The divergence N (2 B)^2 / (2 f^2) that the flooding must bring below 2^-40.
        CHECK(degree * 4.0 * bound * bound / (2.0 * flooding * flooding) <= 0x1p-40);
        // Eight standard deviations of a slot's noise within half a unit of the last place.
        CHECK(8.0 * flooding * std::sqrt(degree) <=
              std::ldexp(0.5, facts.log2_scale - static_cast<int>(fraction_bits)));
        const double largest = std::ldexp(static_cast<double>(facts.max_magnitude()) * max_clients,
                                          facts.log2_scale - static_cast<int>(fraction_bits));
        CHECK(largest + bound + 16.0 * flooding < static_cast<double>(product(facts.primes)) / 2.0);
      }
    }
  }
}

TEST(parameter_ids_depend_on_every_field) {
  for (const Packing packing : {Packing::kExact, Packing::kSlots}) {
    const auto parameters = Parameters::derive({packing, 20, 16, 10, 4096});
    const auto others = variations(parameters->facts());
    for (std::size_t i = 0; i < others.size(); ++i) {
      CHECK(others[i] != parameters->facts());
      CHECK(others[i].id() != parameters->id());
      if (i >= 3) CHECK_THROWS(Parameters::from_facts(others[i]), ErrorCode::kParameter);
    }
  }
}

TEST(parameter_facts_survive_the_wire) {
  for (const Packing packing : {Packing::kExact, Packing::kSlots}) {
    const ParameterFacts facts = Parameters::derive({packing, 20, 16, 10, 4096})->facts();
    const auto encoded = facts.encode();
    CHECK(read_back(encoded) == facts);
    // packing, value_bits, fraction_bits, values, flooding of the wrong packing, prime count, reserved
    const std::vector<std::pair<std::size_t, int>> bad = {
        {0, 0},  {0, 3},  {1, 0},   {1, 1}, {1, 41}, {2, 53}, {3, packing == Packing::kExact ? 0 : 1},
        {6, 0},  {6, 3},  {6, 255}, {7, 1}, {11, 1}, {8, 0},  {12, 1},
        {13, 0}, {16, 3}, {23, 255}};
    for (const auto& [offset, value] : bad) {
      auto altered = encoded;
      altered[offset] = static_cast<std::uint8_t>(value);
      CHECK_THROWS(read_back(altered), ErrorCode::kWireFormat);
    }
    for (std::size_t size = 0; size < encoded.size(); ++size) {
      const std::vector<std::uint8_t> cut(encoded.begin(),
                                          encoded.begin() + static_cast<std::ptrdiff_t>(size));
      CHECK_THROWS(read_back(cut), ErrorCode::kWireFormat);
    }
    // One is 1 modulo everything, and no prime.
    auto one = encoded;
    std::fill(one.begin() + 16, one.begin() + 24, std::uint8_t{0});
    one[16] = 1;
    CHECK_THROWS(read_back(one), ErrorCode::kWireFormat);
  }
}

TEST(impossible_parameters_are_refused) {
  const auto refuses = [](const ParameterRequest& request) {
    CHECK_THROWS(Parameters::derive(request), ErrorCode::kParameter);
  };
  constexpr unsigned kHuge = ~0U;
  for (const Packing packing : {Packing::kExact, Packing::kSlots}) {
    refuses({packing, 0, 24, 20, {}});
    refuses({packing, kMaxClients + 1, 8, 4, {}});
    refuses({packing, kHuge, 8, 4, {}});
    for (const unsigned value_bits : {0U, 1U, kMaxValueBits + 1, kHuge})
      refuses({packing, 4, value_bits, 0, {}});
    for (const unsigned fraction_bits : {kMaxFractionBits + 1, kHuge})
      refuses({packing, 4, 8, fraction_bits, {}});
    for (const std::uint32_t degree : {0U, 1U, 1024U, 2047U, 3072U, 8192U, kHuge}) {
      refuses({packing, 4, 8, 4, degree});
    }
    refuses({packing, kMaxClients, 35, 20, {}});  // 55 bits: no double holds the sums
  }
  refuses({Packing::kExact, 64, 40, 20, 2048});
  refuses({Packing::kSlots, 64, 24, 20, 2048});  // flooding alone takes more than the small ring has
  refuses({Packing::kSlots, 64, 40, 40, {}});
}
