// A ciphertext is one polynomial, c = a s + e + m, as the mixed-radix digits of rlwe/digits.h.
#pragma once

#include <cstddef>

#include "enrolled/aggregator.h"
#include "enrolled/ciphertext.h"
#include "enrolled/sum_request.h"
#include "kahe/public_key.h"

namespace shieldfl::kahe {

using enrolled::ClientKey;
using enrolled::Layout;
using enrolled::Participant;
using enrolled::SumContext;

using FrameHead = enrolled::FrameHead<ParameterFacts>;
using CiphertextView = enrolled::CiphertextView<Scheme>;
using SumRequest = enrolled::SumRequest<Scheme>;
using Aggregator = enrolled::Aggregator<PublicKey>;

// Secret polynomials that a frame of this many ciphertexts takes.
constexpr std::size_t secret_count(std::size_t blocks) {
  return (blocks + kBlocksPerSecret - 1) / kBlocksPerSecret;
}

}  // namespace shieldfl::kahe
