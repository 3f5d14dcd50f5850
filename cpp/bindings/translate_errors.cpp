#include "bindings/translate_errors.h"

#include "common/error.h"

namespace shieldfl::bindings {
namespace {

const char* python_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kParameter:
      return "ParameterError";
    case ErrorCode::kKeyMismatch:
      return "KeyMismatchError";
    case ErrorCode::kWireFormat:
      return "WireFormatError";
    case ErrorCode::kRange:
      return "RangeError";
    case ErrorCode::kCapacity:
      return "CapacityError";
    case ErrorCode::kPolicy:
      return "PolicyError";
    case ErrorCode::kDuplicateFrame:
      return "DuplicateFrameError";
    case ErrorCode::kInternal:
      break;
  }
  return "ShieldError";
}

}  // namespace

void translate_errors() {
  pybind11::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      const auto module = pybind11::module_::import("shieldfl.errors");
      PyErr_SetString(module.attr(python_name(error.code())).ptr(), error.what());
    }
  });
}

}  // namespace shieldfl::bindings
