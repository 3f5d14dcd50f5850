// What benchmarks compare with, timed without a step of Python between two ciphertexts; in a module of its
// own, which nothing but benchmarks loads.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/array_view.h"
#include "bindings/released_interpreter.h"
#include "bindings/translate_errors.h"
#include "ckks/seal_general_path.h"

using namespace shieldfl::bindings;
using shieldfl::ckks::SealCiphertexts;
using shieldfl::ckks::SealGeneralPath;
using shieldfl::ckks::SealSavedCiphertexts;

PYBIND11_MODULE(_seal_baseline, module) {
  module.doc() = "SEAL as its examples use it, for benchmarks.";
  py::dtype::of<float>();
  translate_errors();
  py::class_<SealCiphertexts>(module, "SealCiphertexts");
  py::class_<SealSavedCiphertexts>(module, "SealSavedCiphertexts")
      .def_property_readonly("nbytes", &SealSavedCiphertexts::bytes);
  py::class_<SealGeneralPath>(module, "SealGeneralPath")
      .def(py::init([](std::size_t degree, const std::vector<int>& prime_bits, int log2_scale) {
             const ReleasedInterpreter release;
             return std::make_unique<SealGeneralPath>(degree, prime_bits, log2_scale);
           }),
           py::arg("ring_degree"), py::arg("prime_bits"), py::arg("log2_scale"))
      .def_property_readonly("values_per_ciphertext", &SealGeneralPath::values_per_ciphertext)
      .def(
          "encrypt",
          [](const SealGeneralPath& self, const Array<float>& values, std::size_t threads) {
            const auto in = view(values);
            const ReleasedInterpreter release;
            return self.encrypt(in, threads);
          },
          py::arg("values").noconvert(), py::arg("threads") = 0)
      .def("save", &SealGeneralPath::save, py::arg("ciphertexts"), py::arg("threads") = 0,
           py::call_guard<ReleasedInterpreter>())
      .def("load", &SealGeneralPath::load, py::arg("saved"), py::arg("threads") = 0,
           py::call_guard<ReleasedInterpreter>())
      .def("load_and_add", &SealGeneralPath::load_and_add, py::arg("saved"), py::arg("sum"),
           py::arg("threads") = 0, py::call_guard<ReleasedInterpreter>())
      .def(
          "open",
          [](const SealGeneralPath& self, const SealCiphertexts& sum, std::size_t threads) {
            std::vector<double> values;
            {
              const ReleasedInterpreter release;
              values = self.open(sum, threads);
            }
            return to_array(std::move(values));
          },
          py::arg("sum"), py::arg("threads") = 0);
}
