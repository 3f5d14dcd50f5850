#include <pybind11/stl.h>

#include <memory>

#include "bindings/array_view.h"
#include "bindings/bind_areas.h"
#include "bindings/released_interpreter.h"
#include "ckks/aggregator.h"
#include "ckks/decryptor.h"
#include "ckks/encryptor.h"

namespace shieldfl::bindings {
namespace {

using ckks::Parameters;
using ckks::ParametersPointer;
using ckks::PublicKey;
using ckks::SecretKey;
using Release = py::call_guard<ReleasedInterpreter>;

// A frame with its checked view. The view refers to the bytes object, which therefore lives as long.
struct CiphertextFrame {
  CiphertextFrame(py::bytes frame, FrameKind kind, std::size_t threads) : bytes(std::move(frame)) {
    const std::string_view text = bytes;
    const std::span data(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    const ReleasedInterpreter release;
    view = ckks::CiphertextView::parse(data, kind, threads);
  }

  py::bytes bytes;
  ckks::CiphertextView view;
};

py::dict facts_of(const ckks::ParameterFacts& facts) {
  py::dict dict;
  dict["packing"] = facts.packing == ckks::Packing::kExact ? "exact" : "slots";
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
  dict["ciphertext_bytes"] = facts.block_bytes(FrameKind::kCkksBatch);
  dict["total_ciphertext_bytes"] = facts.block_bytes(FrameKind::kCkksTotal);
  dict["dropped_bits"] = py::make_tuple(facts.dropped_bits0, facts.dropped_bits1);
  return dict;
}

void bind_parameters(py::module_& module) {
  py::class_<Parameters, std::shared_ptr<Parameters>>(module, "CkksParameters")
      .def(py::init([](const std::string& packing, std::uint32_t max_clients, unsigned value_bits,
                       unsigned fraction_bits, std::optional<std::uint32_t> ring_degree) {
        const auto kind = packing == "exact" ? ckks::Packing::kExact : ckks::Packing::kSlots;
        const ReleasedInterpreter release;
        return std::const_pointer_cast<Parameters>(
            Parameters::derive({kind, max_clients, value_bits, fraction_bits, ring_degree}));
      }))
      .def_property_readonly("id", [](const Parameters& self) { return to_bytes(self.id()); })
      .def_property_readonly("facts", [](const Parameters& self) { return facts_of(self.facts()); })
      .def_property_readonly("bytes_per_value", &Parameters::bytes_per_value)
      .def_property_readonly("value_limit", &Parameters::value_limit)
      .def_property_readonly("error_bound", &Parameters::error_bound)
      .def_property_readonly_static("security_bits",
                                    [](const py::object&) { return Parameters::kSecurityBits; });
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
        [](const ckks::Encryptor& self, const Array<T>& values, const mask::Bitset* mask,
           std::optional<double> weight, std::uint64_t round, bool clip, std::size_t threads) {
          const auto in = view(values);
          const NewBytes frame(self.frame_bytes(in.size(), mask, weight.has_value()));
          std::uint64_t clipped = 0;
          {
            const ReleasedInterpreter release;
            SystemSeedSource seeds;
            clipped = self.encrypt(in, mask, {round, weight, clip, threads}, seeds, frame.memory);
          }
          return py::make_tuple(frame.object, clipped);
        },
        py::arg("values").noconvert(), py::arg("mask").none(true), py::arg("weight").none(true),
        py::arg("round"), py::arg("clip"), py::arg("threads"));
  };
  bind_encrypt(float{});
  bind_encrypt(double{});
}

void bind_ciphertexts(py::module_& module) {
  module.def("ckks_mask_id",
             [](const mask::Bitset& mask) { return to_bytes(scheme::mask_id(mask.size(), &mask)); });
  py::class_<CiphertextFrame>(module, "CkksCiphertext")
      .def_static(
          "batch",
          [](py::bytes frame, std::size_t threads) {
            return CiphertextFrame(std::move(frame), FrameKind::kCkksBatch, threads);
          },
          py::arg("frame"), py::arg("threads") = 0)
      .def_static(
          "total",
          [](py::bytes frame, std::size_t threads) {
            return CiphertextFrame(std::move(frame), FrameKind::kCkksTotal, threads);
          },
          py::arg("frame"), py::arg("threads") = 0)
      .def_readonly("frame", &CiphertextFrame::bytes)
      .def_property_readonly(
          "parameter_id", [](const CiphertextFrame& self) { return to_bytes(self.view.layout.parameter_id); })
      .def_property_readonly("key_id",
                             [](const CiphertextFrame& self) { return to_bytes(self.view.layout.key_id); })
      .def_property_readonly("mask_id",
                             [](const CiphertextFrame& self) { return to_bytes(self.view.layout.mask_id); })
      .def_property_readonly("facts", [](const CiphertextFrame& self) { return facts_of(self.view.facts); })
      .def_property_readonly("round", [](const CiphertextFrame& self) { return self.view.layout.round; })
      .def_property_readonly("count",
                             [](const CiphertextFrame& self) { return self.view.layout.value_count; })
      .def_property_readonly("weighted",
                             [](const CiphertextFrame& self) { return self.view.layout.weighted; })
      .def_property_readonly("clients",
                             [](const CiphertextFrame& self) { return self.view.frame_ids.size(); })
      .def_property_readonly("ciphertexts", [](const CiphertextFrame& self) {
        return ckks::block_count(self.view.facts, self.view.layout);
      });
}

void bind_aggregator(py::module_& module) {
  py::class_<ckks::Aggregator>(module, "CkksAggregator")
      .def(py::init(
          [](const std::shared_ptr<PublicKey>& key, std::optional<std::uint64_t> round, std::size_t threads) {
            return std::make_unique<ckks::Aggregator>(key, round, threads);
          }))
      .def("add_parsed",
           [](ckks::Aggregator& self, const CiphertextFrame& batch) {
             const ReleasedInterpreter release;
             self.add(batch.view);
           })
      .def("add_bytes",
           [](ckks::Aggregator& self, const py::buffer& frame) {
             const auto info = frame.request();
             const auto bytes = view(info);
             const ReleasedInterpreter release;
             self.add(bytes);
           })
      .def("add_parsed_total",
           [](ckks::Aggregator& self, const CiphertextFrame& total) {
             const ReleasedInterpreter release;
             self.add_total(total.view);
           })
      .def("add_total_bytes",
           [](ckks::Aggregator& self, const py::buffer& frame) {
             const auto info = frame.request();
             const auto bytes = view(info);
             const ReleasedInterpreter release;
             self.add_total(bytes);
           })
      .def("total",
           [](const ckks::Aggregator& self) {
             std::optional<NewBytes> frame;
             {
               const ReleasedInterpreter release;
               self.total([&](std::size_t bytes) {
                 const py::gil_scoped_acquire acquire;
                 return frame.emplace(bytes).memory;
               });
             }
             return frame->object;
           })
      // Without the interpreter lock: they wait for a thread that adds.
      .def_property_readonly("clients", py::cpp_function(&ckks::Aggregator::clients, Release()))
      .def_property_readonly("round", py::cpp_function(&ckks::Aggregator::round, Release()));
}

// The secret key never becomes a Python object of its own: a decryptor is made together with its public key.
void bind_decryptor(py::module_& module) {
  struct Authority {
    std::shared_ptr<const PublicKey> public_key;
    std::shared_ptr<const SecretKey> secret_key;
  };
  py::class_<Authority>(module, "CkksDecryptor")
      .def(py::init([](const std::shared_ptr<Parameters>& parameters) {
        const ReleasedInterpreter release;
        SystemSeedSource seeds;
        ckks::KeyPair pair = ckks::generate_keys(parameters, seeds);
        return Authority{std::move(pair.public_key), std::move(pair.secret_key)};
      }))
      .def_static("import_secret",
                  [](const std::shared_ptr<PublicKey>& public_key, const py::buffer& secret) {
                    const auto info = secret.request();
                    return Authority{public_key, SecretKey::import_secret(*public_key, view(info))};
                  })
      .def("export_secret",
           [](const Authority& self) {
             const auto secret = self.secret_key->export_secret();
             // A bytearray, so that the caller can overwrite it.
             return py::reinterpret_steal<py::bytearray>(PyByteArray_FromStringAndSize(
                 reinterpret_cast<const char*>(secret.data()), static_cast<py::ssize_t>(secret.size())));
           })
      .def_property_readonly(
          "public_key",
          [](const Authority& self) { return std::const_pointer_cast<PublicKey>(self.public_key); })
      .def(
          "open",
          [](const Authority& self, const CiphertextFrame& total, std::size_t threads) {
            ckks::OpenedSums opened;
            {
              const ReleasedInterpreter release;
              opened = ckks::Decryptor(self.secret_key).open(total.view, threads);
            }
            return py::make_tuple(to_array(std::move(opened.values)), opened.weight_sum);
          },
          py::arg("total"), py::arg("threads") = 0);
}

}  // namespace

void bind_ckks(py::module_& module) {
  bind_parameters(module);
  bind_keys(module);
  bind_encryptor(module);
  bind_ciphertexts(module);
  bind_aggregator(module);
  bind_decryptor(module);
}

}  // namespace shieldfl::bindings
