#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include "bindings/array_view.h"
#include "bindings/bind_areas.h"
#include "bindings/released_interpreter.h"
#include "mask/bitset.h"
#include "mask/compaction.h"
#include "mask/consensus.h"
#include "mask/mask_codec.h"
#include "mask/votes.h"
#include "mask/zones.h"
#include "scheme/layout.h"

namespace shieldfl::bindings {
namespace {

using mask::Bitset;
using Release = py::call_guard<ReleasedInterpreter>;

void bind_bitset(py::module_& module) {
  py::class_<Bitset>(module, "Bitset")
      .def_static("full", &Bitset::full)
      .def_static("empty", [](std::uint64_t size) { return Bitset(size); })
      .def_static(
          "from_bools",
          [](const Array<bool>& bools) {
            const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(bools.data()),
                                                      static_cast<std::size_t>(bools.size()));
            const ReleasedInterpreter release;
            return Bitset::from_bools(bytes);
          },
          py::arg("bools").noconvert())
      .def_static(
          "from_indices",
          [](const Array<std::int64_t>& indices, std::uint64_t size) {
            const auto span = view(indices);
            const ReleasedInterpreter release;
            return Bitset::from_indices(span, size);
          },
          py::arg("indices").noconvert(), py::arg("size"))
      .def_property_readonly("size", &Bitset::size)
      .def_property_readonly("count", &Bitset::count)
      .def("to_bools",
           [](const Bitset& self) {
             Array<bool> out(static_cast<py::ssize_t>(self.size()));
             const std::span<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(out.mutable_data()),
                                                 self.size());
             const ReleasedInterpreter release;
             self.to_bools(bytes);
             return out;
           })
      .def("to_indices",
           [](const Bitset& self) {
             Array<std::int64_t> out(static_cast<py::ssize_t>(self.count()));
             const auto span = mutable_view(out);
             const ReleasedInterpreter release;
             self.to_indices(span);
             return out;
           })
      .def("resized", &Bitset::resized, py::arg("size"), py::arg("chosen"), Release())
      .def(py::self & py::self, Release())
      .def(py::self | py::self, Release())
      .def(py::self - py::self, Release())
      .def(~py::self, Release())
      .def(py::self == py::self, Release());
}

void bind_codec(py::module_& module) {
  module.def("mask_id", [](const Bitset& mask) { return to_bytes(scheme::mask_id(mask.size(), &mask)); });
  module.def("encode_mask", [](const Bitset& mask) {
    std::vector<std::uint8_t> frame;
    {
      const ReleasedInterpreter release;
      frame = mask::encode_mask(mask);
    }
    return to_bytes(frame);
  });
  module.def(
      "decode_mask",
      [](const py::buffer& frame, std::optional<std::uint64_t> expected_size) {
        const auto info = frame.request();
        const auto bytes = view(info);
        const ReleasedInterpreter release;
        return mask::decode_mask(bytes, expected_size);
      },
      py::arg("frame"), py::arg("expected_size") = std::nullopt);
  module.def("inspect_mask", [](const py::buffer& frame) {
    const auto info = frame.request();
    const mask::MaskInfo mask = mask::inspect_mask(view(info));
    py::dict facts;
    facts["size"] = mask.size;
    facts["count"] = mask.count;
    facts["encoding"] = mask::mask_encoding_name(mask.encoding);
    facts["payload_bytes"] = mask.payload_bytes;
    return facts;
  });
}

void bind_votes(py::module_& module) {
  py::class_<mask::Votes>(module, "Votes")
      .def(py::init<std::uint64_t>())
      .def_property_readonly("size", &mask::Votes::size)
      .def_property_readonly("voters", &mask::Votes::voters)
      .def_property_readonly("memory_bytes", &mask::Votes::memory_bytes)
      .def("add", &mask::Votes::add, py::arg("mask"), py::arg("threads") = 0, Release())
      .def("consensus", &mask::Votes::consensus, py::arg("rho"), py::arg("threads") = 0, Release())
      .def(
          "counts",
          [](const mask::Votes& self, std::size_t threads) {
            Array<std::uint32_t> out(static_cast<py::ssize_t>(self.size()));
            const auto span = mutable_view(out);
            const ReleasedInterpreter release;
            self.counts(span, threads);
            return out;
          },
          py::arg("threads") = 0);
  module.def("votes_needed", &mask::votes_needed);
  module.def("negotiate", [](const std::vector<const Bitset*>& masks, double rho, std::size_t threads) {
    const ReleasedInterpreter release;
    return mask::negotiate(masks, rho, threads);
  });
  module.def("negotiate_zones", [](const std::vector<const Bitset*>& masks, double rho, std::size_t threads) {
    mask::NegotiatedZones zones;
    {
      const ReleasedInterpreter release;
      zones = mask::negotiate_zones(masks, rho, threads);
    }
    py::list clients;
    for (mask::ClientZones& client : zones.clients) {
      clients.append(py::make_tuple(std::move(client.personalised), std::move(client.noise)));
    }
    return py::make_tuple(std::move(zones.encrypted), std::move(clients));
  });
  module.def("split_zones", [](const Bitset& local, const Bitset& encrypted) {
    mask::Zones zones;
    {
      const ReleasedInterpreter release;
      zones = mask::split_zones(local, encrypted);
    }
    return py::make_tuple(std::move(zones.encrypted), std::move(zones.personalised), std::move(zones.noise));
  });
}

// Python answers for the lengths: dense has mask.size entries, compact mask.count.
template <typename T>
void bind_compaction(py::module_& module) {
  module.def(
      "gather",
      [](const Array<T>& dense, const Bitset& mask, std::size_t threads) {
        Array<T> out(static_cast<py::ssize_t>(mask.count()));
        const auto in = view(dense);
        const auto span = mutable_view(out);
        mask::check_same_size(in.size(), mask.size());
        const ReleasedInterpreter release;
        mask::gather(in.data(), mask, span.data(), threads);
        return out;
      },
      py::arg("dense").noconvert(), py::arg("mask"), py::arg("threads") = 0);
  const auto scatter_with = [&module](const char* name, auto kernel) {
    module.def(
        name,
        [kernel](const Array<T>& compact, const Bitset& mask, Array<T>& dense, std::size_t threads) {
          const auto in = view(compact);
          const auto out = mutable_view(dense);
          mask::check_same_size(out.size(), mask.size());
          mask::check_same_size(in.size(), mask.count());
          const ReleasedInterpreter release;
          kernel(in.data(), mask, out.data(), threads);
        },
        py::arg("compact").noconvert(), py::arg("mask"), py::arg("dense").noconvert(),
        py::arg("threads") = 0);
  };
  scatter_with("scatter", &mask::scatter<T>);
  scatter_with("scatter_add", &mask::scatter_add<T>);
}

}  // namespace

void bind_mask(py::module_& module) {
  bind_bitset(module);
  bind_codec(module);
  bind_votes(module);
  bind_compaction<float>(module);
  bind_compaction<double>(module);
}

}  // namespace shieldfl::bindings
