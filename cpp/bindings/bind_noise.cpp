#include "bindings/array_view.h"
#include "bindings/bind_areas.h"
#include "bindings/released_interpreter.h"
#include "noise/gaussian.h"
#include "noise/grid_noise.h"

namespace shieldfl::bindings {
namespace {

py::tuple to_tuple(py::object noised, const noise::Clipping& clipping) {
  return py::make_tuple(std::move(noised), clipping.original_norm, clipping.was_clipped());
}

}  // namespace

void bind_noise(py::module_& module) {
  module.def(
      "add_gaussian",
      [](Array<float>& values, double standard_deviation, std::size_t threads) {
        const auto out = mutable_view(values);
        const ReleasedInterpreter release;
        SystemSeedSource seeds;
        noise::add_gaussian(out, standard_deviation, seeds, threads);
      },
      py::arg("values").noconvert(), py::arg("standard_deviation"), py::arg("threads") = 0);
  module.def(
      "clip_and_add_gaussian",
      [](const Array<float>& values, double norm, double standard_deviation, std::size_t threads) {
        Array<float> noised(values.size());
        const auto in = view(values);
        const auto out = mutable_view(noised);
        noise::Clipping clipping;
        {
          const ReleasedInterpreter release;
          SystemSeedSource seeds;
          clipping = noise::clip_and_add_gaussian(in, out, norm, standard_deviation, seeds, threads);
        }
        return to_tuple(std::move(noised), clipping);
      },
      py::arg("values").noconvert(), py::arg("norm"), py::arg("standard_deviation"), py::arg("threads") = 0);
  module.def(
      "clip_and_add_discrete_gaussian_vartime",
      [](const Array<float>& values, double norm, unsigned fraction_bits, std::uint64_t variance_numerator,
         std::uint64_t variance_denominator, std::size_t threads) {
        Array<double> noised(values.size());
        const auto in = view(values);
        const auto out = mutable_view(noised);
        noise::Clipping clipping;
        {
          const ReleasedInterpreter release;
          SystemSeedSource seeds;
          clipping = noise::clip_and_add_discrete_gaussian_vartime(
              in, out, norm, fraction_bits, {variance_numerator, variance_denominator}, seeds, threads);
        }
        return to_tuple(std::move(noised), clipping);
      },
      py::arg("values").noconvert(), py::arg("norm"), py::arg("fraction_bits"), py::arg("variance_numerator"),
      py::arg("variance_denominator"), py::arg("threads") = 0);
}

}  // namespace shieldfl::bindings
