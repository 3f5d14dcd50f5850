#include <memory>

#include "bindings/array_view.h"
#include "bindings/bind_areas.h"
#include "bindings/public_seed.h"
#include "bindings/released_interpreter.h"
#include "noise/gaussian.h"
#include "noise/grid_noise.h"
#include "noise/levels.h"
#include "noise/noise_share.h"
#include "noise/noise_table.h"
#include "noise/rotation.h"

namespace shieldfl::bindings {
namespace {

py::tuple to_tuple(py::object noised, const noise::Clipping& clipping) {
  return py::make_tuple(std::move(noised), clipping.original_norm, clipping.was_clipped());
}

template <typename T>
Array<T> rotate(const Array<T>& values, const py::bytes& seed_bytes, bool inverse, double factor,
                std::size_t threads) {
  const Seed seed = public_seed(seed_bytes);
  Array<T> rotated(values.size());
  const auto in = view(values);
  const auto out = mutable_view(rotated);
  {
    const ReleasedInterpreter release;
    prefer_huge_pages(out.data(), out.size_bytes());
    inverse ? noise::rotate_back(in, out, seed, factor, threads)
            : noise::rotate(in, out, seed, factor, threads);
  }
  return rotated;
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
  module.def("rotate", &rotate<float>, py::arg("values").noconvert(), py::arg("seed"), py::arg("inverse"),
             py::arg("factor"), py::arg("threads") = 0);
  module.def("rotate", &rotate<double>, py::arg("values").noconvert(), py::arg("seed"), py::arg("inverse"),
             py::arg("factor"), py::arg("threads") = 0);
  module.def(
      "rotate_to_levels",
      [](const Array<float>& update, Array<float>& levels, const py::bytes& seed_bytes,
         std::uint32_t sign_of_zero, double steps_per_unit, std::int32_t least, std::int32_t most,
         std::size_t threads) {
        const Seed seed = public_seed(seed_bytes);
        const auto in = view(update);
        const auto out = mutable_view(levels);
        const ReleasedInterpreter release;
        return noise::rotate_to_levels(in, out, {steps_per_unit, least, most}, seed, sign_of_zero, threads);
      },
      py::arg("update").noconvert(), py::arg("levels").noconvert(), py::arg("seed"), py::arg("sign_of_zero"),
      py::arg("steps_per_unit"), py::arg("least"), py::arg("most"), py::arg("threads") = 0);
  py::class_<noise::NoiseTable, std::shared_ptr<noise::NoiseTable>>(module, "NoiseTable")
      .def(py::init([](const Array<std::uint64_t>& high, const Array<std::uint64_t>& low,
                       const Array<std::uint32_t>& others) {
             return std::make_shared<noise::NoiseTable>(view(high), view(low), view(others));
           }),
           py::arg("high").noconvert(), py::arg("low").noconvert(), py::arg("others").noconvert());
  module.def(
      "noise_share_vartime",
      [](const Array<float>& update, double clip_norm, double steps_per_unit, const py::bytes& rotation_seed,
         std::uint64_t norm_bound_squared, std::int32_t most_rounded, std::int32_t most_sent,
         const noise::NoiseTable& table, std::size_t threads) {
        const Seed rotation = public_seed(rotation_seed);
        const noise::ShareBounds bounds{clip_norm, steps_per_unit, norm_bound_squared, most_rounded,
                                        most_sent};
        Array<std::int32_t> share(update.size());
        const auto in = view(update);
        const auto out = mutable_view(share);
        noise::ShareFacts facts;
        {
          const ReleasedInterpreter release;
          prefer_huge_pages(out.data(), out.size_bytes());
          SystemSeedSource seeds;
          facts = noise::noise_share_vartime(in, out, bounds, rotation, table, seeds, threads);
        }
        return py::make_tuple(std::move(share), facts.clipping.original_norm, facts.clipping.was_clipped(),
                              facts.roundings);
      },
      py::arg("update").noconvert(), py::arg("clip_norm"), py::arg("steps_per_unit"),
      py::arg("rotation_seed"), py::arg("norm_bound_squared"), py::arg("most_rounded"), py::arg("most_sent"),
      py::arg("table"), py::arg("threads") = 0);
}

}  // namespace shieldfl::bindings
