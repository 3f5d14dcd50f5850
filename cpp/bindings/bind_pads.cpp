#include <memory>
#include <optional>

#include "bindings/bind_areas.h"
#include "bindings/bind_enrolled.h"
#include "pads/encryptor.h"
#include "pads/sum_key.h"

namespace shieldfl::bindings {
namespace pads_bindings {
namespace {

using pads::Parameters;

py::dict facts_of(const pads::ParameterFacts& facts) {
  const auto bytes = facts.format(FrameKind::kPadsBatch).bytes();
  py::dict dict;
  dict["max_clients"] = facts.max_clients;
  dict["value_bits"] = facts.value_bits;
  dict["fraction_bits"] = facts.fraction_bits;
  dict["guard_bits"] = facts.guard_bits();
  dict["sum_bits"] = facts.field_bits();
  dict["pad_bits"] = facts.field_bits() <= 32 ? 32 : 64;
  dict["values_per_ciphertext"] = facts.values_per_block();
  dict["ciphertext_bytes"] = bytes;
  dict["total_ciphertext_bytes"] = bytes;
  return dict;
}

void bind_parameters(py::module_& module) {
  py::class_<Parameters, std::shared_ptr<Parameters>>(module, "PadsParameters")
      .def(py::init([](std::uint32_t max_clients, unsigned value_bits, unsigned fraction_bits,
                       std::optional<unsigned> sum_bits) {
        return std::const_pointer_cast<Parameters>(
            Parameters::derive({max_clients, value_bits, fraction_bits, sum_bits}));
      }))
      .def_property_readonly("id", [](const Parameters& self) { return to_bytes(self.id()); })
      .def_property_readonly("facts", [](const Parameters& self) { return facts_of(self.facts()); })
      .def_property_readonly("bytes_per_value", &Parameters::bytes_per_value)
      .def_property_readonly("value_limit",
                             [](const Parameters& self) { return self.facts().fixed_point().value_limit(); })
      .def_property_readonly("weight_step",
                             [](const Parameters& self) { return self.facts().fixed_point().weight_step(); })
      .def_property_readonly_static("security_bits", [](const py::object&) { return 8 * kSeedBytes; });
}

struct Pads {
  using PublicKey = pads::PublicKey;
  using Encryptor = pads::Encryptor;
  using Aggregator = pads::Aggregator;
  using CiphertextView = pads::CiphertextView;
  using SumRequest = pads::SumRequest;
  using SumKey = pads::SumKey;

  static py::dict facts(const pads::ParameterFacts& facts) { return facts_of(facts); }
};

}  // namespace
}  // namespace pads_bindings

void bind_pads(py::module_& module) {
  using namespace pads_bindings;
  bind_parameters(module);
  bind_enrolled<Pads>(module, "Pads");
}

}  // namespace shieldfl::bindings
