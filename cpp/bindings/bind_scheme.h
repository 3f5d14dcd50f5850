// What is bound alike for every encryption scheme: frames of ciphertexts, aggregators, holders of secret
// keys.
#pragma once

#include <pybind11/stl.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/array_view.h"
#include "bindings/released_interpreter.h"
#include "common/error.h"
#include "common/random.h"
#include "common/wire.h"
#include "mask/bitset.h"
#include "scheme/round_sum.h"
#include "scheme/value_pieces.h"
#include "scheme/value_reader.h"

namespace shieldfl::bindings {

// An update in as many arrays as whoever has it likes, one after the other.
template <typename T>
using Pieces = std::vector<Array<T>>;

template <typename T>
scheme::ValuePieces<T> view(const Pieces<T>& pieces) {
  std::vector<std::span<const T>> spans;
  for (const Array<T>& piece : pieces) spans.push_back(view(piece));
  return scheme::ValuePieces<T>(std::move(spans));
}

// A frame with its checked view. The view refers to the bytes object, which therefore lives as long.
template <typename View>
struct CiphertextFrame {
  template <typename... Options>
  CiphertextFrame(py::bytes frame, FrameKind kind, Options... options)
      : bytes(std::move(frame)), view(parse(bytes, kind, options...)) {}

  py::bytes bytes;
  View view;

 private:
  template <typename... Options>
  static View parse(std::string_view text, FrameKind kind, Options... options) {
    const std::span data(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    const ReleasedInterpreter release;
    return View::parse(data, kind, options...);
  }
};

// All values of an enumeration and their names in Python.
template <typename Value, std::size_t kCount>
using Names = std::array<std::pair<std::string_view, Value>, kCount>;

// What a name from Python stands for. Throws Error(kParameter) for any other name: nothing is chosen by
// default.
template <typename Value, std::size_t kCount>
Value value_of(std::string_view name, const Names<Value, kCount>& names) {
  for (const auto& [own_name, value] : names) {
    if (own_name == name) return value;
  }
  throw Error(ErrorCode::kParameter, "unknown name '" + std::string(name) + "'");
}

// The same the other way; a value without a name is an Error(kInternal).
template <typename Value, std::size_t kCount>
std::string_view name_of(Value value, const Names<Value, kCount>& names) {
  for (const auto& [name, own_value] : names) {
    if (own_value == value) return name;
  }
  throw Error(ErrorCode::kInternal, "a setting of the core has no name");
}

// (nonzero, underflowed, clipped).
inline py::tuple tuple_of(const scheme::ValueCounts& counts) {
  return py::make_tuple(counts.nonzero, counts.underflowed, counts.clipped);
}

// What batches must have in common by what Python says of a round.
inline scheme::Expected expected_of(std::optional<std::uint64_t> round, const mask::Bitset* positions,
                                    std::optional<bool> weighted) {
  scheme::Expected expected{.round = round, .positions = {}, .weighted = weighted};
  if (positions != nullptr) {
    const ReleasedInterpreter release;
    expected.positions = {positions->content_id(), positions->count()};
  }
  return expected;
}

// Overwritten by whoever receives it.
template <typename Bytes>
py::bytearray to_bytearray(const Bytes& bytes) {
  return py::reinterpret_steal<py::bytearray>(PyByteArray_FromStringAndSize(
      reinterpret_cast<const char*>(bytes.data()), static_cast<py::ssize_t>(bytes.size())));
}

// What a view says of whose and which values it holds, and how many clients'.
template <typename View>
const scheme::Layout& layout_of(const View& view) {
  if constexpr (requires { view.head.layout; }) {
    return view.head.layout;
  } else {
    return view.layout;
  }
}
template <typename View>
std::size_t clients_of(const View& view) {
  if constexpr (requires { view.head.participants; }) {
    return view.head.participants.size();
  } else {
    return view.frame_ids.size();
  }
}

// Properties that views of all schemes have; how one is made is for the scheme to add.
template <typename View>
py::class_<CiphertextFrame<View>> bind_ciphertext(py::module_& module, const char* name) {
  using Frame = CiphertextFrame<View>;
  return py::class_<Frame>(module, name)
      .def_readonly("frame", &Frame::bytes)
      .def_property_readonly("parameter_id",
                             [](const Frame& self) { return to_bytes(layout_of(self.view).parameter_id); })
      .def_property_readonly("key_id",
                             [](const Frame& self) { return to_bytes(layout_of(self.view).key_id); })
      .def_property_readonly("mask_id",
                             [](const Frame& self) { return to_bytes(layout_of(self.view).mask_id); })
      .def_property_readonly("round", [](const Frame& self) { return layout_of(self.view).round; })
      .def_property_readonly("count", [](const Frame& self) { return layout_of(self.view).value_count; })
      .def_property_readonly("weighted", [](const Frame& self) { return layout_of(self.view).weighted; })
      .def_property_readonly("clients", [](const Frame& self) { return clients_of(self.view); });
}

// All but the constructor. `Weight`: std::uint32_t where a batch is added with an integer weight, nothing
// where it is not.
template <typename Aggregator, typename View, typename... Weight>
py::class_<Aggregator> bind_aggregator(py::module_& module, const char* name) {
  using Frame = CiphertextFrame<View>;
  using Release = py::call_guard<ReleasedInterpreter>;
  return py::class_<Aggregator>(module, name)
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
      .def_property_readonly(
          "clients", py::cpp_function([](const Aggregator& self) { return self.clients(); }, Release()))
      .def_property_readonly(
          "round", py::cpp_function([](const Aggregator& self) { return self.round(); }, Release()));
}

// The secret key never becomes a Python object of its own: it is made, kept and used together with its public
// key. `generate` makes a pair from parameters and a source of seeds; `open` takes a pair, a view and a
// number of threads.
template <typename Parameters, typename KeyPair, typename View, typename Generate, typename Open>
void bind_decryptor(py::module_& module, const char* name, Generate generate, Open open) {
  using PublicKey = std::remove_const_t<typename decltype(KeyPair::public_key)::element_type>;
  using SecretKey = typename decltype(KeyPair::secret_key)::element_type;
  py::class_<KeyPair>(module, name)
      .def(py::init([generate](const std::shared_ptr<Parameters>& parameters) {
        const ReleasedInterpreter release;
        SystemSeedSource seeds;
        return generate(parameters, seeds);
      }))
      .def_static("import_secret",
                  [](const std::shared_ptr<PublicKey>& public_key, const py::buffer& secret) {
                    const auto info = secret.request();
                    const auto bytes = view(info);
                    const ReleasedInterpreter release;
                    return KeyPair{public_key, SecretKey::import_secret(*public_key, bytes)};
                  })
      .def("export_secret",
           [](const KeyPair& self) { return to_bytearray(self.secret_key->export_secret()); })
      .def_property_readonly(
          "public_key",
          [](const KeyPair& self) { return std::const_pointer_cast<PublicKey>(self.public_key); })
      .def(
          "open",
          [open](const KeyPair& self, const CiphertextFrame<View>& total, std::size_t threads) {
            auto opened = [&] {
              const ReleasedInterpreter release;
              return open(self, total.view, threads);
            }();
            return py::make_tuple(to_array(std::move(opened.values)), opened.weight_sum);
          },
          py::arg("total"), py::arg("threads") = 0);
}

}  // namespace shieldfl::bindings
