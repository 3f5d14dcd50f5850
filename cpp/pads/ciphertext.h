// A ciphertext is a value under a one-time pad, m + pad mod 2^field_bits, after Castelluccia, Mykletun and
// Tsudik (2005).
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "enrolled/aggregator.h"
#include "enrolled/ciphertext.h"
#include "enrolled/public_key.h"
#include "enrolled/sum_request.h"
#include "pads/parameters.h"

namespace shieldfl::pads {

using enrolled::ClientKey;
using enrolled::Layout;
using enrolled::Participant;
using enrolled::SumContext;

struct Scheme {
  using Facts = ParameterFacts;
  using Parameters = pads::Parameters;

  static constexpr std::string_view kName = "pads";
  static constexpr enrolled::FrameKinds kKinds = {FrameKind::kPadsPublicKey, FrameKind::kPadsBatch,
                                                  FrameKind::kPadsTotal, FrameKind::kPadsSumRequest,
                                                  FrameKind::kPadsSumKey};
};

class PublicKey : public enrolled::PublicKey<Scheme> {
 public:
  using enrolled::PublicKey<Scheme>::PublicKey;

  // Throws Error(kWireFormat).
  static std::shared_ptr<const PublicKey> from_frame(std::span<const std::uint8_t> frame) {
    return enrolled::read_public_key<PublicKey>(frame);
  }
};

using FrameHead = enrolled::FrameHead<ParameterFacts>;
using CiphertextView = enrolled::CiphertextView<Scheme>;
using SumRequest = enrolled::SumRequest<Scheme>;
using Aggregator = enrolled::Aggregator<PublicKey>;

}  // namespace shieldfl::pads
