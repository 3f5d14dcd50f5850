#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ckks/parameter_search.h"
#include "ckks/parameters.h"
#include "tests/check.h"

namespace ckks_parameters_tests {

using namespace shieldfl;
using namespace shieldfl::ckks;

namespace {

ParameterFacts read_back(const std::vector<std::uint8_t>& encoded) {
  FrameWriter writer({FrameKind::kCkksPublicKey, {}, {}}, encoded.size());
  writer.put_bytes(encoded);
  const auto frame = writer.finish();
  FrameReader reader(frame, FrameKind::kCkksPublicKey);
  const ParameterFacts facts = ParameterFacts::read(reader);
  reader.expect_end();
  return facts;
}

// Facts that differ from the given ones in one field each: three settings, then eight that follow from
// settings.
std::vector<ParameterFacts> variations(const ParameterFacts& facts) {
  std::vector<ParameterFacts> all(11, facts);
  ++all[0].value_bits;
  ++all[1].fraction_bits;
  ++all[2].max_clients;
  all[3].packing = facts.packing == Packing::kExact ? Packing::kSlots : Packing::kExact;
  ++all[4].log2_scale;
  ++all[5].log2_flooding;
  ++all[6].values_per_coefficient;
  all[7].degree = facts.degree == 2048 ? 4096 : 2048;
  all[8].primes.back() -= 2 * facts.degree;
  ++all[9].dropped_bits0;
  --all[10].dropped_bits1;
  return all;
}

}  // namespace

TEST(rows_travel_without_their_dropped_bits) {
  for (const ParameterRequest& request : {ParameterRequest{Packing::kExact, 64, 24, 20, {}},
                                          {Packing::kExact, 16, 24, 20, 4096},
                                          {Packing::kSlots, 64, 24, 20, {}}}) {
    const auto parameters = Parameters::derive(request);
    const ParameterFacts& facts = parameters->facts();
    const std::size_t primes = facts.primes.size();
    CHECK(facts.row_count() == 2 * primes && facts.block_words() == 2 * primes * facts.degree);
    CHECK(facts.dropped_bits0 > 0 && facts.dropped_bits1 > 0);
    for (std::size_t row = 0; row < facts.row_count(); ++row) {
      const auto bits = static_cast<unsigned>(std::bit_width(facts.primes[row % primes]));
      for (const FrameKind kind : {FrameKind::kCkksTotal, FrameKind::kCkksPublicKey}) {
        CHECK(facts.format(kind).rows()[row].width.bits == bits &&
              facts.format(kind).rows()[row].width.dropped_bits == 0);
      }
      const unsigned dropped = row == 0 ? facts.dropped_bits0 : row == primes ? facts.dropped_bits1 : 0U;
      const ring::PackedWidth width = facts.format(FrameKind::kCkksBatch).rows()[row].width;
      CHECK(width.dropped_bits == dropped && width.bits + dropped == bits);
    }
    const std::size_t saved = facts.degree * (facts.dropped_bits0 + std::size_t{facts.dropped_bits1}) / 8;
    CHECK(facts.format(FrameKind::kCkksBatch).bytes() + saved == facts.format(FrameKind::kCkksTotal).bytes());
    CHECK(parameters->bytes_per_value() * static_cast<double>(facts.values_per_block()) ==
          static_cast<double>(facts.format(FrameKind::kCkksBatch).bytes()));
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
    // packing, value_bits, fraction_bits, values and flooding of the wrong packing, dropped bits, prime
    // count, reserved, max_clients, degree, a prime
    const bool exact = packing == Packing::kExact;
    const std::vector<std::pair<std::size_t, int>> bad = {{0, 0},
                                                          {0, 3},
                                                          {1, 0},
                                                          {1, 1},
                                                          {1, 41},
                                                          {2, 53},
                                                          {3, exact ? 0 : 1},
                                                          {exact ? 5 : 3, 1},
                                                          {6, 17},
                                                          {7, 17},
                                                          {8, 0},
                                                          {8, 3},
                                                          {8, 255},
                                                          {9, 1},
                                                          {10, 1},
                                                          {11, 1},
                                                          {12, 0},
                                                          {14, 17},
                                                          {16, 1},
                                                          {17, 0},
                                                          {20, 3},
                                                          {27, 255}};
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
    std::fill(one.begin() + 20, one.begin() + 28, std::uint8_t{0});
    one[20] = 1;
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
    refuses({packing, scheme::kMaxClients + 1, 8, 4, {}});
    refuses({packing, kHuge, 8, 4, {}});
    for (const unsigned value_bits : {0U, 1U, scheme::kMaxValueBits + 1, kHuge})
      refuses({packing, 4, value_bits, 0, {}});
    for (const unsigned fraction_bits : {scheme::kMaxFractionBits + 1, kHuge})
      refuses({packing, 4, 8, fraction_bits, {}});
    for (const std::uint32_t degree : {0U, 1U, 1024U, 2047U, 3072U, 8192U, kHuge}) {
      refuses({packing, 4, 8, 4, degree});
    }
    refuses({packing, scheme::kMaxClients, 35, 20, {}});  // 55 bits: no double holds the sums
  }
  refuses({Packing::kExact, 64, 40, 20, 2048});
  refuses({Packing::kSlots, 64, 24, 20, 2048});  // flooding alone takes more than the small ring has
  refuses({Packing::kSlots, 64, 40, 40, {}});
}

}  // namespace ckks_parameters_tests
