#include <memory>
#include <optional>

#include "bindings/bind_areas.h"
#include "bindings/bind_enrolled.h"
#include "kahe/encryptor.h"
#include "kahe/sum_key.h"
#include "rlwe/moduli.h"

namespace shieldfl::bindings {
namespace kahe_bindings {
namespace {

using kahe::Parameters;

py::dict facts_of(const kahe::ParameterFacts& facts) {
  py::dict dict;
  dict["max_clients"] = facts.max_clients;
  dict["value_bits"] = facts.value_bits;
  dict["fraction_bits"] = facts.fraction_bits;
  dict["guard_bits"] = facts.guard_bits();
  dict["sum_bits"] = facts.field_bits();
  dict["values_per_coefficient"] = facts.values_per_coefficient;
  dict["ring_degree"] = facts.degree;
  dict["primes"] = facts.primes;
  dict["log2_scale"] = facts.log2_scale;
  dict["values_per_ciphertext"] = facts.values_per_block();
  dict["ciphertext_bytes"] = facts.format(FrameKind::kKaheBatch).bytes();
  dict["total_ciphertext_bytes"] = facts.format(FrameKind::kKaheTotal).bytes();
  dict["dropped_bits"] = facts.dropped_bits;
  return dict;
}

void bind_parameters(py::module_& module) {
  py::class_<Parameters, std::shared_ptr<Parameters>>(module, "KaheParameters")
      .def(py::init([](std::uint32_t max_clients, unsigned value_bits, unsigned fraction_bits,
                       std::optional<std::uint32_t> ring_degree, std::optional<unsigned> sum_bits) {
        const ReleasedInterpreter release;
        return std::const_pointer_cast<Parameters>(
            Parameters::derive({max_clients, value_bits, fraction_bits, ring_degree, sum_bits}));
      }))
      .def_property_readonly("id", [](const Parameters& self) { return to_bytes(self.id()); })
      .def_property_readonly("facts", [](const Parameters& self) { return facts_of(self.facts()); })
      .def_property_readonly("bytes_per_value", &Parameters::bytes_per_value)
      .def_property_readonly("value_limit",
                             [](const Parameters& self) { return self.facts().fixed_point().value_limit(); })
      .def_property_readonly("weight_step",
                             [](const Parameters& self) { return self.facts().fixed_point().weight_step(); })
      .def_property_readonly("failure_bits", &Parameters::failure_bits)
      .def_property_readonly_static("ciphertexts_per_secret",
                                    [](const py::object&) { return kahe::kBlocksPerSecret; })
      .def_property_readonly_static("security_bits", [](const py::object&) { return rlwe::kSecurityBits; });
}

struct Kahe {
  using PublicKey = kahe::PublicKey;
  using Encryptor = kahe::Encryptor;
  using Aggregator = kahe::Aggregator;
  using CiphertextView = kahe::CiphertextView;
  using SumRequest = kahe::SumRequest;
  using SumKey = kahe::SumKey;

  static py::dict facts(const kahe::ParameterFacts& facts) { return facts_of(facts); }
};

}  // namespace
}  // namespace kahe_bindings

void bind_kahe(py::module_& module) {
  using namespace kahe_bindings;
  bind_parameters(module);
  bind_enrolled<Kahe>(module, "Kahe");
}

}  // namespace shieldfl::bindings
