#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/wire.h"
#include "paillier/parameters.h"
#include "tests/altered_frames.h"
#include "tests/check.h"

namespace paillier_parameters_tests {

using namespace shieldfl;
using namespace shieldfl::paillier;
using tests::Frame;
using tests::with_field;

namespace {

Frame frame_of(const ParameterFacts& facts) {
  const auto encoded = facts.encode();
  FrameWriter writer({FrameKind::kPaillierPublicKey, digest(encoded), {}}, ParameterFacts::kEncodedBytes);
  writer.put_bytes(encoded);
  return writer.finish();
}

Parameters read(const Frame& frame) {
  FrameReader reader(frame, FrameKind::kPaillierPublicKey);
  const Parameters parameters = Parameters::read(reader);
  reader.expect_end();
  return parameters;
}

void check_refused(const ParameterFacts& facts) {
  CHECK_THROWS(Parameters(facts), ErrorCode::kParameter);
  CHECK_THROWS(read(frame_of(facts)), ErrorCode::kWireFormat);
}

}  // namespace

TEST(paillier_parameters_hold_as_many_fields_as_fit) {
  const Parameters dense({.key_bits = 2048, .max_clients = 64});
  CHECK(dense.guard_bits() == 6 && dense.field_bits() == 30);
  CHECK(dense.values_per_ciphertext() == 66);  // 2006 / 30
  CHECK(dense.ciphertext_bytes() == 512 && dense.bytes_per_value() == 512.0 / 66.0);
  CHECK((Parameters({.key_bits = 2048, .packing = Packing::kSingle}).bytes_per_value() == 512.0));
  CHECK(Parameters({}).values_per_ciphertext() == 101);  // 3030 / 30
  CHECK((Parameters({.key_bits = 4096, .value_bits = 2, .fraction_bits = 0, .max_clients = 1})
             .values_per_ciphertext() == 2027));
  // As frames from before spare bits have them.
  CHECK((Parameters({.key_bits = 2048, .spare_bits = 0}).values_per_ciphertext() == 68));
  CHECK(Parameters({.spare_bits = 0}).values_per_ciphertext() == 102);  // 3070 / 30
}

TEST(paillier_guard_bits_are_the_ceiling_of_the_logarithm) {
  const auto guard_bits = [](std::uint32_t clients, std::uint32_t weight) {
    return Parameters({.value_bits = 8, .max_clients = clients, .max_weight = weight}).guard_bits();
  };
  CHECK(guard_bits(1, 1) == 0);
  CHECK(guard_bits(2, 1) == 1 && guard_bits(1, 2) == 1);
  CHECK(guard_bits(3, 1) == 2 && guard_bits(4, 1) == 2 && guard_bits(5, 1) == 3);
  CHECK(guard_bits(5, 13) == 7 && guard_bits(8, 8) == 6);  // 65 and 64
  CHECK(guard_bits(1U << 20, 1U << 20) == 40);
}

TEST(paillier_sums_of_all_clients_stay_in_their_field) {
  for (const std::uint32_t clients : {1U, 2U, 63U, 64U, 65U, 1000U}) {
    for (const std::uint32_t weight : {1U, 2U, 7U, 64U}) {
      const Parameters parameters({.max_clients = clients, .max_weight = weight});
      const auto largest =
          static_cast<std::uint64_t>(parameters.max_magnitude()) * parameters.max_total_weight();
      CHECK(largest < std::uint64_t{1} << (parameters.field_bits() - 1));
      CHECK(parameters.values_per_ciphertext() * parameters.field_bits() <=
            parameters.facts().key_bits - 42U);
    }
  }
}

TEST(paillier_security_is_the_largest_strength_listed_below_the_key_length) {
  CHECK(Parameters({.key_bits = 2048}).security_bits() == 112);
  CHECK(Parameters({.key_bits = 3072}).security_bits() == 128);
  CHECK(Parameters({.key_bits = 4096}).security_bits() == 128);
}

TEST(paillier_parameters_survive_the_wire) {
  for (const std::uint16_t key_bits : kKeyBits) {
    for (const Packing packing : {Packing::kSingle, Packing::kDense}) {
      for (const Randomizer randomizer : {Randomizer::kShortExponent, Randomizer::kClassical}) {
        for (const std::uint8_t spare_bits : {std::uint8_t{0}, kSpareBits}) {
          const ParameterFacts facts{key_bits, packing, randomizer, 16, 12, 1000, 20, spare_bits};
          const Parameters parameters(facts);
          CHECK(parameters.facts() == facts && parameters.id() == digest(facts.encode()));
          CHECK(read(frame_of(facts)) == parameters);
          CHECK(facts.encode().size() == ParameterFacts::kEncodedBytes);
        }
      }
    }
  }
}

TEST(paillier_parameters_out_of_range_are_refused) {
  check_refused({.key_bits = 0});
  check_refused({.key_bits = 1024});
  check_refused({.key_bits = 2049});
  check_refused({.key_bits = 8192});
  check_refused({.packing = static_cast<Packing>(0)});
  check_refused({.packing = static_cast<Packing>(3)});
  check_refused({.randomizer = static_cast<Randomizer>(0)});
  check_refused({.randomizer = static_cast<Randomizer>(3)});
  check_refused({.value_bits = 1});
  check_refused({.value_bits = 41});
  check_refused({.fraction_bits = 53});
  check_refused({.max_clients = 0});
  check_refused({.max_clients = (1U << 20) + 1});
  check_refused({.max_weight = 0});
  check_refused({.max_weight = kMaxWeight + 1});
  check_refused({.spare_bits = 1});
  check_refused({.spare_bits = 41});
  check_refused({.value_bits = 40, .max_clients = (1U << 14) + 1});
  check_refused({.value_bits = 40, .max_clients = 1U << 14, .max_weight = 2});
  (void)Parameters({.value_bits = 40, .max_clients = 1U << 14});  // 54 bits: the most
  (void)Parameters({.value_bits = 14, .max_clients = 1U << 20, .max_weight = kMaxWeight});
}

TEST(the_paillier_parameter_byte_that_is_reserved_must_be_zero) {
  const Frame frame = frame_of({});
  CHECK_THROWS(read(with_field(frame, kFrameHeaderBytes + 7, std::uint8_t{1})), ErrorCode::kWireFormat);
}

TEST(paillier_parameters_have_distinct_identifiers) {
  const std::vector<ParameterFacts> all = {{},
                                           {.key_bits = 2048},
                                           {.packing = Packing::kSingle},
                                           {.randomizer = Randomizer::kClassical},
                                           {.value_bits = 23},
                                           {.fraction_bits = 19},
                                           {.max_clients = 65},
                                           {.max_weight = 2},
                                           {.spare_bits = 0}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) CHECK(Parameters(all[i]).id() != Parameters(all[j]).id());
  }
}

}  // namespace paillier_parameters_tests
