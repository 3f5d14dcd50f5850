// The one error type of the core. The bindings translate its code to a Python class, in one place.
#pragma once

#include <stdexcept>
#include <string>

namespace shieldfl {

enum class ErrorCode {
  kParameter,       // a setting, a size or a combination of them is invalid
  kKeyMismatch,     // made under another key
  kWireFormat,      // bytes that are not a frame this version reads
  kRange,           // a value is NaN, infinite or out of range
  kCapacity,        // more clients than the parameters allow
  kPolicy,          // would reveal more than the roles allow
  kDuplicateFrame,  // a frame that was added before
  kInternal,        // the platform failed us, or a broken invariant of the core itself
};

// Messages say what to do; they carry sizes, positions and limits, never data or key material.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

[[noreturn]] inline void fail_parameter(const std::string& message) {
  throw Error(ErrorCode::kParameter, message);
}

[[noreturn]] inline void fail_wire_format(const std::string& message) {
  throw Error(ErrorCode::kWireFormat, message);
}

inline void require(bool condition, const std::string& message) {
  if (!condition) fail_parameter(message);
}

}  // namespace shieldfl
