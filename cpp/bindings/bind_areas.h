// One function for each area of the core; module.cpp calls them.
#pragma once

#include <pybind11/pybind11.h>

namespace shieldfl::bindings {

void bind_mask(pybind11::module_& module);
void bind_ckks(pybind11::module_& module);
void bind_client_keys(pybind11::module_& module);
void bind_kahe(pybind11::module_& module);
void bind_pads(pybind11::module_& module);
void bind_paillier(pybind11::module_& module);
void bind_selection(pybind11::module_& module);
void bind_noise(pybind11::module_& module);
void bind_wire(pybind11::module_& module);

}  // namespace shieldfl::bindings
