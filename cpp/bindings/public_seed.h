// A seed that everybody may know, from the bytes that Python holds.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string_view>

#include "common/error.h"
#include "common/random.h"

namespace shieldfl::bindings {

inline Seed public_seed(const pybind11::bytes& bytes) {
  const std::string_view text = bytes;
  Seed seed;
  if (text.size() != seed.bytes.size()) {
    throw Error(ErrorCode::kParameter, "a public seed has 32 bytes");
  }
  std::copy(text.begin(), text.end(), seed.bytes.begin());
  return seed;
}

}  // namespace shieldfl::bindings
