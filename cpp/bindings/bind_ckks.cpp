#include <memory>

#include "bindings/bind_areas.h"
#include "bindings/bind_scheme.h"
#include "ckks/aggregator.h"
#include "ckks/decryptor.h"
#include "ckks/encryptor.h"
#include "rlwe/moduli.h"

namespace shieldfl::bindings {
namespace ckks_bindings {
namespace {

using ckks::CiphertextView;
using ckks::Parameters;
using ckks::ParametersPointer;
using ckks::PublicKey;

constexpr Names<ckks::Packing, 2> kPackings = {
    {{"exact", ckks::Packing::kExact}, {"slots", ckks::Packing::kSlots}}};

py::dict facts_of(const ckks::ParameterFacts& facts) {
  py::dict dict;
  dict["packing"] = name_of(facts.packing, kPackings);
  dict["max_clients"] = facts.max_clients;
  dict["value_bits"] = facts.value_bits;
  dict["fraction_bits"] = facts.fraction_bits;
  dict["guard_bits"] = facts.guard_bits();
  dict["values_per_coefficient"] = facts.values_per_coefficient;
  dict["ring_degree"] = facts.degree;
  dict["primes"] = facts.primes;
  dict["log2_scale"] = facts.log2_scale;
  dict["log2_flooding"] = facts.log2_flooding;
  dict["values_per_ciphertext"] = facts.values_per_block();
  dict["ciphertext_bytes"] = facts.format(FrameKind::kCkksBatch).bytes();
  dict["total_ciphertext_bytes"] = facts.format(FrameKind::kCkksTotal).bytes();
  dict["dropped_bits"] = py::make_tuple(facts.dropped_bits0, facts.dropped_bits1);
  return dict;
}

void bind_parameters(py::module_& module) {
  py::class_<Parameters, std::shared_ptr<Parameters>>(module, "CkksParameters")
      .def(py::init([](const std::string& packing, std::uint32_t max_clients, unsigned value_bits,
                       unsigned fraction_bits, std::optional<std::uint32_t> ring_degree) {
        const ckks::Packing kind = value_of(packing, kPackings);
        const ReleasedInterpreter release;
        return std::const_pointer_cast<Parameters>(
            Parameters::derive({kind, max_clients, value_bits, fraction_bits, ring_degree}));
      }))
      .def_property_readonly("id", [](const Parameters& self) { return to_bytes(self.id()); })
      .def_property_readonly("facts", [](const Parameters& self) { return facts_of(self.facts()); })
      .def_property_readonly("bytes_per_value", &Parameters::bytes_per_value)
      .def_property_readonly("value_limit", &Parameters::value_limit)
      .def_property_readonly("weight_step",
                             [](const Parameters& self) { return self.facts().fixed_point().weight_step(); })
      .def_property_readonly("error_bound", &Parameters::error_bound)
      .def_property_readonly_static("security_bits", [](const py::object&) { return rlwe::kSecurityBits; });
}

void bind_keys(py::module_& module) {
  py::class_<PublicKey, std::shared_ptr<PublicKey>>(module, "CkksPublicKey")
      .def_static("from_bytes",
                  [](const py::buffer& frame) {
                    const auto info = frame.request();
                    const auto bytes = view(info);
                    const ReleasedInterpreter release;
                    return std::const_pointer_cast<PublicKey>(PublicKey::from_frame(bytes));
                  })
      .def("to_bytes", [](const PublicKey& self) { return to_bytes(self.to_frame()); })
      .def_property_readonly("id", [](const PublicKey& self) { return to_bytes(self.id()); })
      .def_property_readonly("parameters", [](const PublicKey& self) {
        return std::const_pointer_cast<Parameters>(self.parameters());
      });
}

void bind_encryptor(py::module_& module) {
  py::class_<ckks::Encryptor> encryptor(module, "CkksEncryptor");
  encryptor.def(py::init([](const std::shared_ptr<PublicKey>& key) { return ckks::Encryptor(key); }));
  const auto bind_encrypt = [&encryptor]<typename T>(T) {
    encryptor.def(
        "encrypt",
        [](const ckks::Encryptor& self, const Pieces<T>& pieces, const mask::Bitset* mask,
           std::optional<double> weight, std::uint64_t round, bool clip, std::size_t threads) {
          const auto in = view(pieces);
          const NewBytes frame(self.frame_bytes(in.size(), mask, weight.has_value()));
          scheme::ValueCounts counts;
          {
            const ReleasedInterpreter release;
            SystemSeedSource seeds;
            counts = self.encrypt(in, mask, {round, weight, clip, threads}, seeds, frame.memory);
          }
          return py::make_tuple(frame.object, tuple_of(counts));
        },
        py::arg("pieces").noconvert(), py::arg("mask").none(true), py::arg("weight").none(true),
        py::arg("round"), py::arg("clip"), py::arg("threads"));
  };
  bind_encrypt(float{});
  bind_encrypt(double{});
}

void bind_ciphertexts(py::module_& module) {
  using Frame = CiphertextFrame<CiphertextView>;
  bind_ciphertext<CiphertextView>(module, "CkksCiphertext")
      .def_static(
          "batch",
          [](py::bytes frame, std::size_t threads) {
            return Frame(std::move(frame), FrameKind::kCkksBatch, threads);
          },
          py::arg("frame"), py::arg("threads") = 0)
      .def_static(
          "total",
          [](py::bytes frame, std::size_t threads) {
            return Frame(std::move(frame), FrameKind::kCkksTotal, threads);
          },
          py::arg("frame"), py::arg("threads") = 0)
      .def_property_readonly("facts", [](const Frame& self) { return facts_of(self.view.facts); })
      .def_property_readonly("ciphertexts", [](const Frame& self) {
        return ckks::block_count(self.view.facts, self.view.layout);
      });
}

}  // namespace
}  // namespace ckks_bindings

void bind_ckks(py::module_& module) {
  using namespace ckks_bindings;
  bind_parameters(module);
  bind_keys(module);
  bind_encryptor(module);
  bind_ciphertexts(module);
  bind_aggregator<ckks::Aggregator, CiphertextView>(module, "CkksAggregator")
      .def(py::init([](const std::shared_ptr<PublicKey>& key, std::optional<std::uint64_t> round,
                       const mask::Bitset* positions, std::optional<bool> weighted, std::size_t threads) {
             return std::make_unique<ckks::Aggregator>(key, expected_of(round, positions, weighted), threads);
           }),
           py::arg("key"), py::arg("round").none(true), py::arg("positions").none(true),
           py::arg("weighted").none(true), py::arg("threads"));
  bind_decryptor<Parameters, ckks::KeyPair, CiphertextView>(
      module, "CkksDecryptor", ckks::generate_keys,
      [](const ckks::KeyPair& keys, const CiphertextView& total, std::size_t threads) {
        return ckks::Decryptor(keys.secret_key).open(total, threads);
      });
}

}  // namespace shieldfl::bindings
