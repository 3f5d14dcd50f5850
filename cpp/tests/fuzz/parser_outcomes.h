// What became of the frames that a fuzzer gave to parsers.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>

#include "common/error.h"

namespace shieldfl::tests {

inline void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

struct ParserOutcomes {
  std::uint64_t accepted = 0;
  std::map<ErrorCode, std::uint64_t> refused;
};

// Calls a parser; true when it accepted. Any exception but our own goes on up.
template <typename Parse>
bool accepts(ParserOutcomes& outcomes, Parse parse) {
  try {
    parse();
    ++outcomes.accepted;
    return true;
  } catch (const Error& error) {
    require(error.code() != ErrorCode::kInternal, "a frame led to an internal error");
    ++outcomes.refused[error.code()];
    return false;
  }
}

}  // namespace shieldfl::tests
