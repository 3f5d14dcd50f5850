// What the tests of key-additive encryption share.
#pragma once

#include "tests/enrolled/enrolled_cases.h"

namespace shieldfl::tests {

using Session = EnrolledSession<KaheTypes>;

inline kahe::SumRequest request_of(const Frame& total) {
  return Session::request_of(total);
}

struct KaheOffsets : SumOffsets {
  explicit KaheOffsets(const kahe::ParameterFacts& parameters)
      : SumOffsets(kahe::ParameterFacts::encoded_bytes(parameters.primes.size())) {}
};

}  // namespace shieldfl::tests
