// shieldfl::Error becomes the Python exception of the same name, from shieldfl.errors.
#pragma once

#include <pybind11/pybind11.h>

namespace shieldfl::bindings {

// Registers the translation for this extension module.
void translate_errors();

}  // namespace shieldfl::bindings
