#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "bindings/bind_areas.h"
#include "bindings/translate_errors.h"
#include "ckks/seal_bridge.h"
#include "common/cpu_features.h"
#include "parallel/parallel_for.h"
#include "scheme/fixed_point.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The compiled core of shieldfl. Use the public modules; this one may change.";
  module.attr("__version__") = SHIELDFL_VERSION;
  // Looks up NumPy's interface now: the first use, in a thread, would wait for the interpreter's lock without
  // what ReleasedInterpreter does for a thread that sees the interpreter end.
  pybind11::dtype::of<float>();
  shieldfl::bindings::translate_errors();
  shieldfl::bindings::bind_mask(module);
  shieldfl::bindings::bind_ckks(module);
  shieldfl::bindings::bind_client_keys(module);
  shieldfl::bindings::bind_kahe(module);
  shieldfl::bindings::bind_pads(module);
  shieldfl::bindings::bind_paillier(module);
  shieldfl::bindings::bind_selection(module);
  shieldfl::bindings::bind_noise(module);
  shieldfl::bindings::bind_wire(module);
  module.attr("MOST_VALUE_BITS") = shieldfl::scheme::kMaxValueBits;
  module.attr("MOST_FRACTION_BITS") = shieldfl::scheme::kMaxFractionBits;
  module.attr("MOST_FIELD_BITS") = shieldfl::scheme::kMaxFieldBits;
  module.def("available_threads", &shieldfl::available_threads);
  module.def("threads_started", &shieldfl::threads_started);
  // A function, so that a set which cannot be had is an error of ours: the module's own loading would make it
  // an ImportError.
  module.def("instruction_set", [] { return shieldfl::instruction_set_name(shieldfl::instruction_set()); });
  module.def("seal_version", &shieldfl::ckks::seal_version);
}
