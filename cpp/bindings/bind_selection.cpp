#include <pybind11/stl.h>

#include "bindings/array_view.h"
#include "bindings/bind_areas.h"
#include "bindings/released_interpreter.h"
#include "selection/mutual_information.h"
#include "selection/selection.h"

namespace shieldfl::bindings {
namespace {

using mask::Bitset;
using selection::Selection;
using selection::SelectionLimits;

template <typename T>
void bind_for(py::module_& module) {
  module.def(
      "select",
      [](const Array<T>& scores, const Array<T>& weights, const SelectionLimits& limits,
         std::size_t threads) {
        const auto score_values = view(scores);
        const auto weight_values = view(weights);
        const ReleasedInterpreter release;
        return selection::select(score_values, weight_values, limits, threads);
      },
      py::arg("scores").noconvert(), py::arg("weights").noconvert(), py::arg("limits"),
      py::arg("threads") = 0);
  module.def(
      "top_k",
      [](const Array<T>& scores, std::uint64_t k, std::size_t threads) {
        const auto values = view(scores);
        const ReleasedInterpreter release;
        return selection::top_k(values, k, threads);
      },
      py::arg("scores").noconvert(), py::arg("k"), py::arg("threads") = 0);
  module.def(
      "mutual_information",
      [](const Array<T>& weights, const Bitset& mask, std::size_t bins, std::size_t threads) {
        const auto values = view(weights);
        const ReleasedInterpreter release;
        return selection::mutual_information(values, mask, bins, threads);
      },
      py::arg("weights").noconvert(), py::arg("mask"), py::arg("bins"), py::arg("threads") = 0);
}

}  // namespace

void bind_selection(py::module_& module) {
  py::class_<SelectionLimits>(module, "SelectionLimits")
      .def(py::init([](double budget, double exposed_share, double exposure_decay, double information_bits,
                       std::size_t bins, double cost_weight, double gain_weight) {
             return SelectionLimits{budget, exposed_share, exposure_decay, information_bits,
                                    bins,   cost_weight,   gain_weight};
           }),
           py::kw_only(), py::arg("budget"), py::arg("exposed_share"), py::arg("exposure_decay"),
           py::arg("information_bits"), py::arg("bins"), py::arg("cost_weight"), py::arg("gain_weight"));
  py::class_<Selection>(module, "Selection")
      .def_readonly("mask", &Selection::mask)
      .def_readonly("best_count", &Selection::best_count)
      .def_readonly("security_count", &Selection::security_count)
      .def_readonly("information_count", &Selection::information_count)
      .def_readonly("budget_count", &Selection::budget_count)
      .def_readonly("required_share", &Selection::required_share)
      .def_readonly("share", &Selection::share)
      .def_readonly("information_bits", &Selection::information_bits);
  module.def("positions_in_budget", &selection::positions_in_budget, py::arg("budget"), py::arg("size"));
  bind_for<float>(module);
  bind_for<double>(module);
}

}  // namespace shieldfl::bindings
