#include "bindings/array_view.h"
#include "bindings/bind_areas.h"
#include "noise/gaussian.h"
#include "parallel/parallel_for.h"

namespace shieldfl::bindings {

void bind_noise(py::module_& module) {
  module.def(
      "add_gaussian",
      [](Array<float>& values, double standard_deviation, std::size_t threads) {
        const auto out = mutable_view(values);
        const py::gil_scoped_release release;
        SystemSeedSource seeds;
        noise::add_gaussian(out, standard_deviation, seeds, resolve_threads(threads));
      },
      py::arg("values").noconvert(), py::arg("standard_deviation"), py::arg("threads") = 0);
}

}  // namespace shieldfl::bindings
