#include <pybind11/pybind11.h>

#include "bindings/bind_areas.h"
#include "bindings/translate_errors.h"
#include "ckks/seal_bridge.h"
#include "parallel/parallel_for.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The compiled core of shieldfl. Use the public modules; this one may change.";
  module.attr("__version__") = SHIELDFL_VERSION;
  shieldfl::bindings::translate_errors();
  shieldfl::bindings::bind_mask(module);
  shieldfl::bindings::bind_ckks(module);
  shieldfl::bindings::bind_noise(module);
  shieldfl::bindings::bind_wire(module);
  module.def("available_threads", &shieldfl::available_threads);
  module.def("seal_version", &shieldfl::ckks::seal_version);
}
