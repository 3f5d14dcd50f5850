#include "bindings/array_view.h"
#include "bindings/bind_areas.h"
#include "bindings/released_interpreter.h"
#include "common/wire.h"
#include "scheme/total_digest.h"

namespace shieldfl::bindings {

void bind_wire(py::module_& module) {
  py::class_<FrameSummary>(module, "FrameSummary")
      .def_readonly("has_magic", &FrameSummary::has_magic)
      .def_readonly("version", &FrameSummary::version)
      .def_readonly("kind", &FrameSummary::kind)
      .def_property_readonly("kind_name", [](const FrameSummary& self) { return frame_kind_name(self.kind); })
      .def_readonly("declared_bytes", &FrameSummary::declared_bytes)
      .def_property_readonly("parameter_id",
                             [](const FrameSummary& self) { return to_bytes(self.parameter_id); })
      .def_property_readonly("key_id", [](const FrameSummary& self) { return to_bytes(self.key_id); })
      .def_readonly("checksum_ok", &FrameSummary::checksum_ok)
      .def_readonly("problem", &FrameSummary::problem);
  module.def("summarise_frame", [](const py::buffer& frame) {
    const auto info = frame.request();
    return summarise_frame(view(info));
  });
  module.def(
      "total_digest",
      [](const py::buffer& frame, std::size_t threads) {
        const auto info = frame.request();
        const auto bytes = view(info);
        Digest digest;
        {
          const ReleasedInterpreter release;
          digest = scheme::total_digest(bytes, threads);
        }
        return to_bytes(digest);
      },
      py::arg("frame"), py::arg("threads") = 0);
}

}  // namespace shieldfl::bindings
