// What is bound alike for every encryption scheme: frames of ciphertexts, aggregators, holders of secret
// keys.
#pragma once

#include <pybind11/stl.h>

#include <functional>
#include <memory>
#include <optional>

#include "bindings/array_view.h"
#include "bindings/released_interpreter.h"
#include "common/random.h"
#include "common/wire.h"

namespace shieldfl::bindings {

// A frame with its checked view. The view refers to the bytes object, which therefore lives as long.
template <typename View>
struct CiphertextFrame {
  template <typename... Options>
  CiphertextFrame(py::bytes frame, FrameKind kind, Options... options) : bytes(std::move(frame)) {
    const std::string_view text = bytes;
    const std::span data(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    const ReleasedInterpreter release;
    view = View::parse(data, kind, options...);
  }

  py::bytes bytes;
  View view;
};

// Properties that views of all schemes have; how one is made is for the scheme to add.
template <typename View>
py::class_<CiphertextFrame<View>> bind_ciphertext(py::module_& module, const char* name) {
  using Frame = CiphertextFrame<View>;
  return py::class_<Frame>(module, name)
      .def_readonly("frame", &Frame::bytes)
      .def_property_readonly("parameter_id",
                             [](const Frame& self) { return to_bytes(self.view.layout.parameter_id); })
      .def_property_readonly("key_id", [](const Frame& self) { return to_bytes(self.view.layout.key_id); })
      .def_property_readonly("mask_id", [](const Frame& self) { return to_bytes(self.view.layout.mask_id); })
      .def_property_readonly("round", [](const Frame& self) { return self.view.layout.round; })
      .def_property_readonly("count", [](const Frame& self) { return self.view.layout.value_count; })
      .def_property_readonly("weighted", [](const Frame& self) { return self.view.layout.weighted; })
      .def_property_readonly("clients", [](const Frame& self) { return self.view.frame_ids.size(); });
}

// `Weight`: std::uint32_t where a batch is added with an integer weight, nothing where it is not.
template <typename Aggregator, typename PublicKey, typename View, typename... Weight>
py::class_<Aggregator> bind_aggregator(py::module_& module, const char* name) {
  using Frame = CiphertextFrame<View>;
  using Release = py::call_guard<ReleasedInterpreter>;
  return py::class_<Aggregator>(module, name)
      .def(py::init([](const std::shared_ptr<PublicKey>& key, std::optional<std::uint64_t> round,
                       std::size_t threads) { return std::make_unique<Aggregator>(key, round, threads); }))
      .def("add_parsed",
           [](Aggregator& self, const Frame& batch, Weight... weight) {
             const ReleasedInterpreter release;
             self.add(batch.view, weight...);
           })
      .def("add_bytes",
           [](Aggregator& self, const py::buffer& frame, Weight... weight) {
             const auto info = frame.request();
             const auto bytes = view(info);
             const ReleasedInterpreter release;
             self.add(bytes, weight...);
           })
      .def("add_parsed_total",
           [](Aggregator& self, const Frame& total) {
             const ReleasedInterpreter release;
             self.add_total(total.view);
           })
      .def("add_total_bytes",
           [](Aggregator& self, const py::buffer& frame) {
             const auto info = frame.request();
             const auto bytes = view(info);
             const ReleasedInterpreter release;
             self.add_total(bytes);
           })
      .def("total",
           [](const Aggregator& self) {
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
      .def_property_readonly("clients", py::cpp_function(&Aggregator::clients, Release()))
      .def_property_readonly("round", py::cpp_function(&Aggregator::round, Release()));
}

// The secret key never becomes a Python object of its own: it is made, kept and used together with its public
// key.
template <typename PublicKey, typename SecretKey>
struct HeldKeys {
  std::shared_ptr<const PublicKey> public_key;
  std::shared_ptr<const SecretKey> secret_key;
};

// `generate` makes a pair from parameters and a source of seeds; `open` takes held keys, a view and a number
// of threads.
template <typename Parameters, typename PublicKey, typename SecretKey, typename View, typename Generate,
          typename Open>
void bind_decryptor(py::module_& module, const char* name, Generate generate, Open open) {
  using Held = HeldKeys<PublicKey, SecretKey>;
  py::class_<Held>(module, name)
      .def(py::init([generate](const std::shared_ptr<Parameters>& parameters) {
        const ReleasedInterpreter release;
        SystemSeedSource seeds;
        auto pair = generate(parameters, seeds);
        return Held{std::move(pair.public_key), std::move(pair.secret_key)};
      }))
      .def_static("import_secret",
                  [](const std::shared_ptr<PublicKey>& public_key, const py::buffer& secret) {
                    const auto info = secret.request();
                    const auto bytes = view(info);
                    const ReleasedInterpreter release;
                    return Held{public_key, SecretKey::import_secret(*public_key, bytes)};
                  })
      .def("export_secret",
           [](const Held& self) {
             const auto secret = self.secret_key->export_secret();
             // A bytearray, so that the caller can overwrite it.
             return py::reinterpret_steal<py::bytearray>(PyByteArray_FromStringAndSize(
                 reinterpret_cast<const char*>(secret.data()), static_cast<py::ssize_t>(secret.size())));
           })
      .def_property_readonly(
          "public_key", [](const Held& self) { return std::const_pointer_cast<PublicKey>(self.public_key); })
      .def(
          "open",
          [open](const Held& self, const CiphertextFrame<View>& total, std::size_t threads) {
            auto opened = [&] {
              const ReleasedInterpreter release;
              return open(self, total.view, threads);
            }();
            return py::make_tuple(to_array(std::move(opened.values)), opened.weight_sum);
          },
          py::arg("total"), py::arg("threads") = 0);
}

}  // namespace shieldfl::bindings
